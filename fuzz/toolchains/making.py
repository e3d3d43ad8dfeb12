"""Making a toolchain, and taking it away.

It is built beside its place and moved there once torch can be imported, so that what was cut short
is never taken for a toolchain. uv makes it where that is installed, else venv and pip do.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from attnfuzz.corpus.files import UNFINISHED, write_atomically
from attnfuzz.fuzz.errors import UserError, one_line, user_path
from attnfuzz.fuzz.toolchains.named import (
    RECORD,
    Record,
    Toolchain,
    check_name,
    find,
    home,
    interpreter_in,
)
from attnfuzz.generators.reading.complaints import mismatch

ALWAYS = ("numpy",)
"""Installed beside torch, which warns at every start without it."""

IMPORT_S = 300.0
"""Seconds that the first import of torch may take: nothing of it is compiled or cached yet."""

_ASK = "import platform, torch; print(torch.__version__, platform.python_version())"


class MakingFailed(UserError):
    """The toolchain cannot be installed, or its torch cannot be imported; one sentence."""


def requirement(version: str, where: str) -> str:
    """What is asked of an index for torch `version`: "2.15" is its newest patch. Raises
    UserError."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        expected = "a version like 2.15, 2.15.0 or 2.15.0+cpu"
        raise UserError(mismatch(where, expected, repr(version))) from None
    whole = len(parsed.release) >= 3 or parsed.is_prerelease or parsed.local
    return f"torch=={version}" if whole else f"torch=={version}.*"


def check_packages(packages: Sequence[str]) -> None:
    """Raises UserError for what is no requirement as pip knows them."""
    for one in packages:
        try:
            Requirement(one)
        except InvalidRequirement:
            expected = "a package as pip names it, like triton==3.7.1"
            raise UserError(mismatch("--with", expected, repr(one))) from None


def check_indexes(indexes: Sequence[str]) -> None:
    """Raises UserError for what is no address of an index."""
    for one in indexes:
        if not one.startswith(("https://", "http://", "file://")):
            raise UserError(mismatch("--index", "an address, https://… or file://…", repr(one)))


def check(name: str, torch: str, indexes: Sequence[str], packages: Sequence[str]) -> list[str]:
    """What is to be installed for a toolchain so named. Raises UserError where something given is
    wrong, as far as that can be told beforehand."""
    check_name(name)
    check_packages(packages)
    check_indexes(indexes)
    return [requirement(torch, "--torch"), *ALWAYS, *packages]


def make(
    name: str,
    torch: str,
    *,
    indexes: Sequence[str] = (),
    packages: Sequence[str] = (),
    python: str = sys.executable,
) -> Toolchain:
    """Makes the toolchain `name` with that release of torch and further `packages`, of the
    interpreter `python`. `indexes` are searched beside those of pip's or uv's own configuration.

    Raises UserError where the name is taken or something given is wrong, and MakingFailed where it
    cannot be installed or torch not be imported; nothing is left of it then.
    """
    wanted = check(name, torch, indexes, packages)
    folder = home() / name
    with user_path(folder), _alone(name) as lock:
        if folder.exists():
            there = "is there" if find(name) else "is there, and broken"
            raise UserError(
                f"toolchain {name}: {there}; `attnfuzz toolchain remove {name}` takes it away"
            )
        unfinished = folder.with_name(f"{UNFINISHED}{name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            _install(unfinished, wanted, indexes, python, lock)
            record = _record(unfinished, packages)
            write_atomically(unfinished / RECORD, record.model_dump_json(indent=2) + "\n")
            os.replace(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return Toolchain(name, folder, record)


def remove(name: str) -> None:
    """Takes the toolchain `name` away, or what is left of one that was never finished. Raises
    UserError where there is neither."""
    check_name(name)
    folder = home() / name
    unfinished = folder.with_name(f"{UNFINISHED}{name}")
    if not folder.is_dir() and not unfinished.is_dir():
        raise UserError(f"toolchain {name}: there is none; `attnfuzz toolchain list` has all")
    with user_path(folder), _alone(name):
        shutil.rmtree(unfinished, ignore_errors=True)
        if folder.is_dir():
            os.replace(folder, unfinished)  # whatever happens next, it is a toolchain no more
            shutil.rmtree(unfinished)


@contextmanager
def _alone(name: str) -> Iterator[int]:
    """While this is held, no other process makes or removes the toolchain. What an installer that
    outlives us holds open keeps it held. Gives the lock's descriptor."""
    home().mkdir(parents=True, exist_ok=True)
    with (home() / f".lock-{name}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"toolchain {name}: another process makes or removes it") from None
        yield file.fileno()


def _install(
    folder: Path, wanted: Sequence[str], indexes: Sequence[str], python: str, lock: int
) -> None:
    inside = str(interpreter_in(folder))
    uv = shutil.which("uv")
    if uv is not None:
        _run([uv, "venv", "--quiet", "--python", python, "--relocatable", str(folder)], lock)
        more = [option for url in indexes for option in ("--index", url)]
        installer = [uv, "pip", "install", "--quiet", "--python", inside, *more]
        # As pip does it: the best of all indexes, not what the first has.
        installer += ["--index-strategy", "unsafe-best-match"]
    else:
        _run([python, "-m", "venv", str(folder)], lock)
        more = [option for url in indexes for option in ("--extra-index-url", url)]
        installer = [inside, "-m", "pip", "install", "--no-compile", *more]  # not quiet: says why
    _run([*installer, "--", *wanted], lock)


def _run(command: Sequence[str], lock: int) -> None:
    """Runs one step. Raises MakingFailed with the line that says what is wrong."""
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, pass_fds=(lock,),
            env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )  # fmt: skip
    except OSError as error:
        raise MakingFailed(f"{command[0]} cannot be started: {error.strerror}") from error
    if ran.returncode:
        raise MakingFailed(f"torch cannot be installed: {_reason(ran.stdout + ran.stderr)}")


def _reason(output: str) -> str:
    """What pip calls the cause of a conflict; else the last line that an installer calls an error,
    or its last line."""
    cause = output.partition("The conflict is caused by:\n")[2].partition("\n\n")[0]
    if cause:
        return one_line("; ".join(line.strip() for line in cause.splitlines()))[:500]
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().lstrip(" ×").startswith("error")]
    return one_line((errors or lines or ["it says nothing"])[-1])[:500]


def _record(folder: Path, packages: Sequence[str]) -> Record:
    """The versions in the virtual environment. Raises MakingFailed where torch does not import."""
    try:
        ran = subprocess.run(
            [str(interpreter_in(folder)), "-I", "-c", _ASK], capture_output=True, text=True,
            errors="replace", check=False, timeout=IMPORT_S, stdin=subprocess.DEVNULL, cwd="/",
            env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise MakingFailed(f"importing its torch takes more than {IMPORT_S:.0f} s") from None
    said = ran.stdout.strip().rpartition("\n")[2].split()
    if ran.returncode or len(said) != 2:
        raise MakingFailed(f"its torch cannot be imported: {_reason(ran.stderr)}")
    return Record(torch=said[0], python=said[1], packages=tuple(packages))
