"""`launch`: a campaign, from its configuration to the table of what it found."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, console, emit, interpreter, note
from attnfuzz.fuzz.errors import EXIT_INTERRUPTED, EXIT_OK, UserError, user_path
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import say
from attnfuzz.fuzz.shipped import configuration
from attnfuzz.generators.model.outcome import OF_SETUP

DEFECTS = "defects.txt"
"""In a campaign's directory: what attnfuzz itself did wrong."""

if TYPE_CHECKING:
    from attnfuzz.fuzz.campaign.config import CampaignConfig


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(launch)


def launch(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG",
            help="A file such as configs/smoke.yaml, or a bare name such as smoke. What is "
            "installed is taken where the current folder has no such file.",
        ),
    ],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where everything is kept. Default: campaigns/NAME-OF-CONFIG."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget of this run, instead of the configuration's.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the configuration's.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers, instead of the configuration's.")
    ] = None,
    toolchain: Annotated[
        str | None,
        typer.Option(
            "--toolchain",
            metavar="NAME|PYTHON",
            help="Whose torch is tested, instead of the configuration's.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report there when it has ended."),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address",
            metavar="HOST:PORT|auto",
            envvar="RAY_ADDRESS",
            help="Workers run on this Ray cluster, instead of the configuration's.",
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            min=0.0,
            metavar="SECONDS",
            help="Wait so long for the end of another campaign that holds the directory.",
        ),
    ] = 0.0,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the campaign in the directory, if one is there."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a campaign: find, confirm, minimize, and keep what fails.

    Shows a live view on a terminal, a line every 10 s elsewhere, and JSON lines with `--json`, the
    last of which is the result. The campaign can be killed at any instant; `--resume` goes on.

    `attnfuzz launch configs/overnight.yaml --dir campaigns/night --minutes 480`

    Exit codes: 0 when it ran to its end, whatever it found; 2 when the configuration or the
    directory cannot be used, or the disk is full; 130 when it was interrupted. What was found is
    kept in every case.
    """
    from attnfuzz.corpus.store.defects import defects
    from attnfuzz.corpus.store.store import DATABASE, Store
    from attnfuzz.fuzz.campaign.config import load_config

    python = None if toolchain is None else interpreter(toolchain)
    file = configuration(config)
    loaded = load_config(file, minutes=minutes, seed=seed, workers=workers, toolchain=python)
    loaded = on_cluster(loaded, ray_address)
    folder = directory or Path("campaigns") / config.stem
    if not resume and _is_there(folder / DATABASE):
        raise UserError(f"{folder}: a campaign is there; add --resume, or name another --dir")
    from attnfuzz.fuzz.campaign.launch import launch as run
    from attnfuzz.fuzz.report import findings
    from attnfuzz.fuzz.report.live import watching

    with watching("json" if as_json else "auto") as show:
        result = run(loaded, folder, show, str(file), wait_s=wait)
    with Store(folder, create=False) as store:
        if as_json:
            emit({"ended": result.ended, **findings.campaign_json(store, folder)})
        else:
            console().print(findings.campaign_table(store, folder))
        worst = findings.worst(store, folder)
        defective = store.read(defects)
        not_run = [why for why in store.totals().rejections if why.startswith(OF_SETUP)]
    if html is not None:
        _write_report(folder, html)
        if not as_json:
            say("\n" + next_steps(file, folder, html, worst))
    if result.snapshot.not_run:
        programs = counted(result.snapshot.not_run, "program")
        note(f"attnfuzz: not run: {programs}, {'; '.join(not_run[:3])}")
    if result.snapshot.defects:
        tasks = counted(result.snapshot.defects, "task")
        note(f"attnfuzz: {tasks} failed by attnfuzz's own fault{_written(folder, defective)}")
    raise typer.Exit(EXIT_INTERRUPTED if result.ended == "interrupted" else EXIT_OK)


def _written(folder: Path, defective: Sequence[str]) -> str:
    """Says which file has the programs and tracebacks, once they are there."""
    if not defective:
        return ""
    file = folder / DEFECTS
    with user_path(file):
        file.write_text(f"\n{'-' * 80}\n".join(defective))
    return f": see {file}"


def on_cluster(config: CampaignConfig, address: str | None) -> CampaignConfig:
    """The configuration with its workers on the Ray cluster at `address`, where one is given."""
    return config if address is None else config.model_copy(update={"ray_address": address})


def _write_report(folder: Path, html: Path) -> None:
    from attnfuzz.fuzz.dashboard.html_report import write_report
    from attnfuzz.fuzz.dashboard.sources import sources

    (source,) = sources([folder])
    with contextlib.closing(source), user_path(html):
        write_report(source, html)


def next_steps(config: Path, folder: Path, html: Path, worst: str | None) -> str:
    """Three lines: what to open, and what to do next with the bucket `worst`, if anything was
    found."""
    looks = f"attnfuzz show {worst} --dir {folder}"
    further = f"attnfuzz launch {config} --dir {folder} --resume"
    steps = {
        f"open {html}": "everything about what was found, in a browser",
        looks if worst else further: "the worst of it" if worst else "goes on looking",
        f"attnfuzz dashboard {folder}": "the same as pages, with every failing program",
    }
    longest = max(map(len, steps))
    return "\n".join(f"{step:{longest}}   {what}" for step, what in steps.items())


def _is_there(database: Path) -> bool:
    """Is there a campaign? Where the path cannot even be looked at, the campaign will say why."""
    try:
        return database.exists()
    except OSError:
        return False
