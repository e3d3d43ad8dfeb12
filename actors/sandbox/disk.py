"""What a program has written to the disk: looked at from outside, as a limit on each file leaves
the number of files open."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = 512
"""Bytes of what stat(2) counts blocks in, whatever the disk's are."""

SHOWN = 10


@dataclass
class Usage:
    """The `bytes` on the disk, and how many of them each file has, by its path."""

    bytes: int = 0
    files: dict[str, int] = field(default_factory=dict)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def add(self, name: str, found: os.stat_result) -> None:
        """Counts a file, once."""
        if (key := (found.st_dev, found.st_ino)) not in self._seen:
            self._seen.add(key)
            self.files[name] = found.st_blocks * BLOCK
            self.bytes += self.files[name]

    def __str__(self) -> str:
        """The largest files, a line each, and how many there are."""
        largest = sorted(self.files.items(), key=lambda one: (-one[1], one[0]))[:SHOWN]
        lines = [f"{size >> 20} MiB {name}" for name, size in largest]
        return "\n".join([f"{self.bytes >> 20} MiB in {len(self.files)} files", *lines])


def used(directory: Path, pids: Iterable[int] = ()) -> Usage:
    """What is in `directory`, and the files of its disk that the processes `pids` have open and
    that have no name any more: they take room until they are closed."""
    usage = Usage()
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                path = os.path.join(folder, name)
                usage.add(os.path.relpath(path, directory), os.lstat(path))
    with contextlib.suppress(OSError):
        device = os.stat(directory).st_dev
        for pid in pids:
            _add_nameless(usage, pid, device)
    return usage


def _add_nameless(usage: Usage, pid: int, device: int) -> None:
    with contextlib.suppress(OSError):  # ended meanwhile
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{name}")
                nameless = found.st_nlink == 0 and stat.S_ISREG(found.st_mode)
                if nameless and found.st_dev == device:
                    usage.add(f"a removed file (inode {found.st_ino})", found)
