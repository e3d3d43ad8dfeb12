"""Writing so that a crash at any instant leaves either the old or the new, never a half, and so
that nothing is written by way of a link: what is there may come from anybody."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import ProgramError, is_there

UNFINISHED = ".unfinished-"
"""Begins the name of what is being written. It is derived from the final name, so that whoever
writes the same thing again clears away what a crash left behind."""


def write_atomically(path: Path, text: str) -> None:
    """Make `text` the content of `path`. Raises OSError, and ProgramError where a folder is in the
    way; the old content then stands."""
    if path.is_dir() and not path.is_symlink():
        raise ProgramError(mismatch(path, "a file to write to", "a folder"))
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        _write_through(unfinished, text)
        os.replace(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def make_folder_atomically(folder: Path, files: Mapping[str, str]) -> None:
    """Make `folder` with `files` (relative path: text) in it, all or nothing. Where the folder is
    there already, each file is written atomically instead. Raises OSError, and ProgramError where
    something else is in the way."""
    for one in (folder.parent, folder, *((folder / name).parent for name in files)):
        _refuse_other_than_folder(one)
    if folder.is_dir():
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_atomically(folder / name, text)
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f"{UNFINISHED}{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir()
        for name, text in files.items():
            (unfinished / name).parent.mkdir(exist_ok=True)
            _write_through(unfinished / name, text)
        for below in {(unfinished / name).parent for name in files}:
            _sync_folder(below)
        os.replace(unfinished, folder)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    _sync_folder(folder.parent)


def move_folder(folder: Path, into: Path) -> None:
    """Move `folder` into the folder `into` of the same file system, all or nothing. Raises
    OSError."""
    os.rename(folder, into / folder.name)
    for changed in (into, folder.parent):
        _sync_folder(changed)


@contextlib.contextmanager
def locked(corpus: Path) -> Iterator[None]:
    """One process at a time, and one thread of it, changes `corpus`. Raises OSError."""
    folder = os.open(corpus, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _refuse_other_than_folder(path: Path) -> None:
    if is_there(path) and (path.is_symlink() or not path.is_dir()):
        raise ProgramError(mismatch(path, "a folder to write to", "a link or a file"))


def _write_through(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # what a crash left, or a link or pipe that somebody put there
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with open(handle, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """A rename lasts once its folder is on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
