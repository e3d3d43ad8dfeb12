"""Headers that some kernels have beside Inductor's own are precompiled too.

Inductor precompiles `cpp_prefix.h`, with which each of its kernels begins. Those of templates begin
with more, `ATen/Context.h` and the like, which take 1.3 of the 3.1 CPU seconds that g++ needs for a
kernel of flex_attention (g++ 12, torch 2.13, an Intel Xeon). What several texts begin with is
precompiled with their options, and read before them. They stay as they are: a header of torch's is
read once, so the same is read in the same order, and g++ makes the same machine code. What does not
compile so is compiled as torch asks.

Needs the standard library alone; only the zygote's children use this file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from attnfuzz.actors.sandbox.headers import MADE, is_whole, precompile

WANTED = 3
"""Texts of one zygote that begin alike before this is precompiled: it takes as long as two."""

INCLUDE = re.compile(r"\s*#include <[^>]+>\s*")
NAME = "more-"


class MoreHeaders:
    """See the module's docstring. What is known of this zygote's texts is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, command: Sequence[str], cwd: str) -> list[str]:
        """`command` of the compiler, with a header that has all that its text begins with where
        there is one, and as it is otherwise."""
        words = list(command)
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            place = words.index("-include") + 1
            prefix = Path(words[place])
            words[place] = str(self._header(words, prefix, cwd) or prefix)
            os.utime(words[place] + MADE)  # it was used
        return words

    def _header(self, words: Sequence[str], prefix: Path, cwd: str) -> Path | None:
        """The header that is to be included instead of `prefix`, where it is built. Raises
        ValueError where the command compiles no one file, and what files and processes raise."""
        [source] = [word for word in words if word.endswith(".cpp")]
        lines = _beginning(Path(cwd, source).read_text())
        if len(lines) < 2 or lines[0] != prefix.read_text().strip():
            return None
        options = _options(words, source)
        key = _digest(str(prefix), *options, *lines)
        with open(self._folder / f"{key}.more.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            noted = self._folder / f"{key}.more"
            times, name = noted.read_text().split() if noted.exists() else ("0", "")
            header = prefix.with_name(name or _name(options, lines, self._folder / key))
            built = Path(f"{header}{MADE}")
            if not is_whole(built):
                noted.write_text(f"{int(times) + 1} {header.name}")
                if int(times) + 1 != WANTED:  # more: it could not be built
                    return None
                _build(header, options, lines)
            noted.write_text(f"{times} {header.name}")
        return header


def _beginning(text: str) -> list[str]:
    """The headers with which a text begins, as it includes them."""
    found: list[str] = []
    for line in text.splitlines():
        if line.strip() and not INCLUDE.fullmatch(line):
            break
        found += filter(None, [line.strip()])
    return found


def _options(words: Sequence[str], source: str) -> list[str]:
    """The compiler and its options, without what is included, read, written and linked."""
    with_word = ("-include", "-o")
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if word not in (*with_word, source)
        and before not in with_word
        and not word.startswith(("-l", "-L"))
    ]


def _name(options: Sequence[str], lines: Sequence[str], scratch: Path) -> str:
    """The header's name, another one whenever something is read for it that was not before."""
    text = Path(f"{scratch}.hpp")
    text.write_text("\n".join(lines) + "\n")
    command = [*options, "-E", "-P", "-x", "c++", str(text)]
    read = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    text.unlink()
    return f"{NAME}{_digest(*options, hashlib.sha256(read.stdout).hexdigest())}.h"


def _build(header: Path, options: Sequence[str], lines: Sequence[str]) -> None:
    """Has the header precompiled."""
    header.write_text("\n".join(lines) + "\n")
    built = Path(f"{header}{MADE}")
    command = [*options, "-x", "c++-header", str(header), "-o", str(built)]
    said = subprocess.DEVNULL
    precompile(command, built, {"stdout": said, "stderr": said, "check": True})


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
