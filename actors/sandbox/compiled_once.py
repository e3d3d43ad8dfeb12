"""What compilers made of a text is kept for the programs that come after, of one zygote.

Most of what a compilation costs on a CPU is g++, and its result depends on its command and on the
files that this reads alone. A finding that is run again has the same kernels, and so have the ranks
of a program, where one compiles and the others wait. Torch does all that it does otherwise: it
writes the text, calls the compiler, and loads what is there. Of a card's kernels Triton and ptxas
take the most, and Triton's own cache has them. Programs of which it is judged how long they take
to compile have everything compiled, and linked as torch asks.

What g++ compiled is linked by gold where there is one: GNU ld takes 0.40 CPU seconds for a kernel,
since torch's libraries have many symbols, and gold 0.12 (binutils 2.40). More headers are
precompiled than torch does (`more_headers`).

Needs torch and the standard library; only the zygote loads this file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnfuzz.actors.sandbox.files import oldest_beyond
from attnfuzz.actors.sandbox.headers import MADE as HEADER
from attnfuzz.actors.sandbox.headers import precompile
from attnfuzz.actors.sandbox.more_headers import MoreHeaders

KEPT = "compiled"
KERNELS = "kernels"
MOST_BYTES = 256 << 20
MADE = (".so", ".o", HEADER)
LINKER = "gold"


def keep_compiled(folder: Path) -> None:
    """From now on Inductor takes from `folder` what its C++ compiler made of the same files with
    the same options. A torch that calls the compiler otherwise calls it every time."""
    from torch._inductor import cpp_builder

    if hasattr(cpp_builder, "subprocess"):
        folder.mkdir(exist_ok=True)
        linker = LINKER if shutil.which(f"ld.{LINKER}") else None
        cpp_builder.subprocess = _Subprocess(folder, linker)


def compile_anew() -> None:
    """From now on this process has the compiler called every time."""
    builder = sys.modules.get("torch._inductor.cpp_builder")
    if builder is not None and isinstance(builder.__dict__.get("subprocess"), _Subprocess):
        builder.__dict__["subprocess"] = subprocess


def keep_kernels(folder: Path) -> None:
    """From now on this process has Triton's cache, whose keys are a kernel's text, its options and
    the card, in `folder`, which the programs before had too."""
    with contextlib.suppress(OSError):  # no room: they are compiled again
        folder.mkdir(exist_ok=True)
        _drop_oldest(folder)
        os.environ["TRITON_CACHE_DIR"] = str(folder)


def _drop_oldest(folder: Path) -> None:
    for one in oldest_beyond({one: _bytes(one) for one in folder.iterdir()}, MOST_BYTES):
        gone = one.rename(one.with_suffix(".gone"))  # whole, though this process may be killed
        shutil.rmtree(gone)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*"))


class _Subprocess:
    """`subprocess` for the module that calls the compiler. It stands below torch's own function,
    whose exceptions and stacks are what they are without it."""

    def __init__(self, folder: Path, linker: str | None = None) -> None:
        self._folder, self._linker = folder, linker
        self._headers = MoreHeaders(folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(self, command: Sequence[str], **how: Any) -> Any:
        """As `subprocess.run`, unless the command's output is there already."""
        output = _output(command)
        if output is None:
            return subprocess.run(command, **how)
        if output.suffix == HEADER:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                return precompile(command, output, how)
            return subprocess.run(command, **how)
        digest = _digest(command, output, how.get("cwd") or ".")
        kept = self._folder / digest
        with open(self._folder / f"{digest[:2]}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another rank may be at it
            with contextlib.suppress(OSError):  # not there, or another rank has just removed it
                shutil.copyfile(kept, output)
                os.utime(kept)
                return subprocess.CompletedProcess(command, 0, b"")
            done = self._made(command, output, how)
            with contextlib.suppress(OSError):  # no room, or gone: it is compiled again
                self._keep(output, kept)
        return done

    def _made(self, command: Sequence[str], output: Path, how: Mapping[str, Any]) -> Any:
        """The compiler was called, as torch asks if it fails with other headers or linker."""
        ours = self._headers.command(command, how.get("cwd") or ".")
        if self._linker is not None and output.suffix == ".so":
            ours.append(f"-fuse-ld={self._linker}")
        if ours != list(command):
            with contextlib.suppress(subprocess.CalledProcessError):
                return subprocess.run(ours, **how)
        return subprocess.run(command, **how)

    def _keep(self, output: Path, kept: Path) -> None:
        unfinished = kept.with_suffix(".unfinished")
        shutil.copyfile(output, unfinished)
        unfinished.rename(kept)
        there = {path: path.stat().st_size for path in self._folder.iterdir() if not path.suffix}
        for path in oldest_beyond(there, MOST_BYTES):
            path.unlink()


def _output(command: Sequence[str]) -> Path | None:
    """The library, object file or precompiled header that the command makes, or None."""
    named = [after for one, after in zip(command, command[1:], strict=False) if one == "-o"]
    return Path(named[0]) if len(named) == 1 and named[0].endswith(MADE) else None


def _digest(command: Sequence[str], output: Path, folder: str) -> str:
    """Of the command and of the files that are named in it, which lie in a folder of the program's
    own; what lies elsewhere, torch's headers, stays as it is."""
    own = os.path.realpath(os.environ.get("TORCHINDUCTOR_CACHE_DIR", folder))
    digest = hashlib.sha256()
    for word in command:
        path = os.path.realpath(os.path.join(folder, word))
        if path == os.path.realpath(output):
            word = output.suffix
        elif path.startswith(own) and os.path.isfile(path):
            word = hashlib.sha256(Path(path).read_bytes()).hexdigest() + Path(path).suffix
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()
