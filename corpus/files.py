"""Writing so that a crash at any instant leaves either the old or the new, never a half."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

UNFINISHED = ".unfinished-"
"""Begins the name of what is being written. It is derived from the final name, so that whoever
writes the same thing again clears away what a crash left behind."""


def write_atomically(path: Path, text: str) -> None:
    """Make `text` the content of `path`. Raises OSError; the old content then stands."""
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
    there already, each file is written atomically instead. Raises OSError."""
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


def _write_through(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
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
