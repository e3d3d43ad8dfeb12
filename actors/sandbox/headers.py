"""Precompiled headers, which all zygotes of a user share: each is whole, or is not there.

g++ needs ten CPU seconds for one and writes it where it is to be, and torch takes what it finds
for whole. A compiler that is killed would leave a torn one for ever. So one is made under another
name, and a file beside it vouches for it once it is whole. What no file vouches for, a torch made
that calls the compiler in another way than `compiled_once` knows: the next zygote drops it.

One is 140 to 230 MB, and each torch, each environment and each set of flags has its own. Those that
nothing was compiled with for longest go.

Needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnfuzz.actors.sandbox.files import below, oldest_beyond

DONE = ".done"  # "<file>.done" vouches that the file beside it is whole
MADE = ".gch"
BUILT = (MADE, ".so")
LIBRARIES = "virtual"
"""The folder, beside the headers, of libraries that `targets.stand_in_library` puts there whole."""

MOST_BYTES = 3 << 30


def precompile(command: Sequence[str], header: Path, how: Mapping[str, Any]) -> Any:
    """Has `command` make `header`, a path that it names: there is a whole one or none, whenever
    this process is killed. Raises what `subprocess.run` raises with `how`, and OSError."""
    unfinished = header.with_name(f"{header.name.removesuffix(MADE)}-{os.getpid()}{MADE}")
    words = [str(unfinished) if word == str(header) else word for word in command]
    done = subprocess.run(words, **how)
    unfinished.rename(header)
    vouch_for(header)
    with contextlib.suppress(FileNotFoundError):  # another process is at it too
        _drop_oldest(header.parent)
    return done


def _drop_oldest(folder: Path) -> None:
    there = [one for one in folder.glob(f"*{MADE}") if is_whole(one)]
    for one in oldest_beyond({one: one.stat().st_size for one in there}, MOST_BYTES):
        _vouching(one).unlink(missing_ok=True)
        one.unlink(missing_ok=True)


def vouch_for(built: Path) -> None:
    """Says that a file is whole."""
    _vouching(built).touch()


def is_whole(built: Path) -> bool:
    """Whether it is there and was vouched for."""
    return built.exists() and _vouching(built).exists()


def _vouching(built: Path) -> Path:
    return built.with_name(built.name + DONE)


def built_in(headers: Path) -> list[Path]:
    """What torch had g++ write there: precompiled headers and libraries."""
    found = below(headers, *BUILT)
    return [path for path in found if headers / LIBRARIES not in path.parents]


def drop_unfinished(headers: Path) -> None:
    """Removes what g++ wrote and nothing vouches for: it may have been killed while writing, and
    torch would use the torn file for ever."""
    for built in built_in(headers):
        if not _vouching(built).exists():
            built.unlink(missing_ok=True)
    for done in below(headers, DONE):
        if not done.with_name(done.name.removesuffix(DONE)).exists():
            done.unlink(missing_ok=True)


def drop_headers_since(headers: Path, began: float) -> None:
    """Removes precompiled headers written since `began` (a time.time()): the killed child's g++
    may have left one unfinished. One that was whole, and that nothing vouches for, is only built
    again."""
    for built in below(headers, MADE):
        try:
            if not _vouching(built).exists() and built.stat().st_mtime >= began:
                built.unlink()
        except FileNotFoundError:  # another sandbox was faster
            continue
