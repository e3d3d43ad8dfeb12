"""`submit`: a campaign as a job of a Ray cluster; and `health`, which says whether one goes on."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from attnfuzz.fuzz.cli.common import Json, emit, note
from attnfuzz.fuzz.errors import EXIT_CHANGED, EXIT_OK, UserError
from attnfuzz.fuzz.report.escape import say
from attnfuzz.fuzz.shipped import configuration
from attnfuzz.generators.reading.complaints import mismatch

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

CAMPAIGN_FILE = "campaign.yaml"
LOOK_S = 2.0
LEASE_WAIT_S = 120
NOT_READY, READY_S = "No available agent to submit job", 60.0
OF_THE_HEAD = ("corpus", "toolchain", "baseline", "toolchains")
"""Keys whose paths are those of the cluster's head."""


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(submit)
    app.command()(health)


def submit(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A campaign's configuration, as for launch.")
    ],
    directory: Annotated[
        Path, typer.Option("--dir", help="Where the campaign is kept, on the cluster's head.")
    ],
    address: Annotated[
        str, typer.Option(help="Ray's job server: the address of the dashboard.")
    ] = "http://127.0.0.1:8265",
    minutes: Annotated[float | None, typer.Option(help="Budget, as for launch.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show what it prints, until it has ended.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a campaign as a Ray job: it goes on when this command has ended.

    The configuration and the files that it names travel with the job. A campaign that is in the
    directory already is gone on with. The cluster's head needs attnfuzz, and this machine
    `pip install attnfuzz[cluster]`.

    `attnfuzz submit configs/cluster.yaml --dir /campaigns/night --address http://head:8265`

    Exit codes: 0 when the job was accepted, with --follow when it succeeded; 1 when it did not; 2
    when it cannot be submitted.
    """
    if not directory.is_absolute():
        raise UserError(mismatch("--dir", "an absolute path on the cluster's head", str(directory)))
    file = configuration(config)
    with tempfile.TemporaryDirectory(prefix="attnfuzz-submit-") as made:
        _pack(file, Path(made))
        command = ["attnfuzz", "launch", CAMPAIGN_FILE, "--dir", str(directory), "--resume"]
        command += ["--wait", str(LEASE_WAIT_S), "--ray-address", "auto"]
        command += [] if minutes is None else ["--minutes", str(minutes)]
        client = _client(address)
        try:
            job = _submitted(client, shlex.join(command), made)
        except (RuntimeError, ConnectionError) as error:
            raise UserError(f"{address}: the job was refused: {error}") from None
    if as_json:
        emit({"job": job, "address": address})
    else:
        say(f"{job}: ray job logs {job} --address {address} --follow")
    if follow:
        raise typer.Exit(_follow(client, job))


def _submitted(client: JobSubmissionClient, command: str, folder: str) -> str:
    """The id of the job. A head that has just been started answers before it takes jobs."""
    end = time.monotonic() + READY_S
    while True:
        try:
            return client.submit_job(entrypoint=command, runtime_env={"working_dir": folder})
        except RuntimeError as error:
            if NOT_READY not in str(error) or time.monotonic() > end:
                raise
        time.sleep(LOOK_S)


def _client(address: str) -> JobSubmissionClient:
    if _has_token():  # Ray takes one that is there for its clusters, but not for a job's client
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    from ray.exceptions import RayError

    try:
        from ray.job_submission import JobSubmissionClient

        return JobSubmissionClient(address)
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ImportError) or "ray[default]" in str(error):
            lacks = "submit needs Ray's job client: pip install attnfuzz[cluster]"
            raise UserError(lacks) from None
        raise UserError(f"{address}: {error}") from None
    except RayError as error:  # of authentication
        said = str(error).strip().splitlines()[0]
        raise UserError(f"{address}: {said}") from None
    except ConnectionError:
        raise UserError(f"{address}: no job server of Ray answers there") from None


def _has_token() -> bool:
    """Whether there is a token where Ray looks for one."""
    named = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return named or (Path.home() / ".ray" / "auth_token").is_file()


def _pack(file: Path, folder: Path) -> None:
    """Writes the configuration, and the files that it names, to `folder`. Raises ConfigError."""
    from attnfuzz.fuzz.campaign.config import config_from_data
    from attnfuzz.generators.reading.safe_yaml import load_yaml_safely, read_text

    data: Any = load_yaml_safely(read_text(file), str(file))
    if not isinstance(data, dict):
        raise UserError(mismatch(file, "a mapping of keys to values"))
    here = {key: value for key, value in data.items() if key not in OF_THE_HEAD}
    checked = config_from_data(here, str(file), file.parent)
    for key in OF_THE_HEAD[:1]:
        for place, path in enumerate(data.get(key) or ()):
            if not Path(str(path)).is_absolute():
                expected = "an absolute path, on the cluster's head"
                raise UserError(mismatch(f"{file}: {key}[{place}]", expected, str(path)))
    preload = []
    for place, path in enumerate(checked.preload):
        kept = folder / "preload" / str(place) / path.name
        kept.parent.mkdir(parents=True)
        shutil.copy(path, kept)
        preload.append(str(kept.relative_to(folder)))
    packed = {**data, "preload": preload}
    if checked.known_issues is not None:
        shutil.copy(checked.known_issues, folder / "known_issues.yaml")
        packed["known_issues"] = "known_issues.yaml"
    (folder / CAMPAIGN_FILE).write_text(yaml.safe_dump(packed, sort_keys=False))


def _follow(client: JobSubmissionClient, job: str) -> int:
    """Prints what the job prints; gives the exit code."""
    shown = 0
    while True:
        status = client.get_job_status(job)
        said = client.get_job_logs(job)
        if said[shown:].strip():
            note(said[shown:].rstrip("\n"))
        shown = len(said)
        if status.is_terminal():
            say(f"{job}: {status.value.lower()}")
            return EXIT_OK if status.value == "SUCCEEDED" else EXIT_CHANGED
        time.sleep(LOOK_S)


def health(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A campaign's directory.")],
    within: Annotated[
        float,
        typer.Option("--within", metavar="SECONDS", help="How old what it last wrote may be."),
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Say whether a campaign goes on: a probe for whoever watches over it.

    `attnfuzz health campaigns/night`

    Exit codes: 0 when it has written down how far it is within the last seconds, and its controller
    holds the directory; 1 when not; 2 when no campaign is there.
    """
    from attnfuzz.corpus.store.lease import EXPIRES_S, age_s, holder_of
    from attnfuzz.corpus.store.progress import progress_of
    from attnfuzz.corpus.store.store import Store

    with Store(directory, create=False) as store:
        moments = store.read(progress_of)
    last = moments[-1] if moments else None
    silent_s = time.time() - last.at if last is not None else None
    holder, renewed_s = holder_of(directory), age_s(directory)
    is_held = renewed_s is not None and renewed_s < EXPIRES_S
    goes_on = is_held and silent_s is not None and silent_s <= within
    told = {
        "goes_on": goes_on,
        "controller": str(holder) if is_held and holder is not None else None,
        "silent_s": None if silent_s is None else round(silent_s, 1),
        "workers": last.workers if last is not None else 0,
        "ready": goes_on and last is not None and last.busy > 0,
    }
    if as_json:
        emit(told)
    else:
        who = told["controller"] or "no controller"
        say(f"{directory}: {'goes on' if goes_on else 'stands still'}, {who}")
    raise typer.Exit(EXIT_OK if goes_on else EXIT_CHANGED)
