"""Finding and removing files, whatever state they were left in. Standard library only."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

DONE = ".done"  # "<file>.done" vouches that the file beside it is whole


def below(folder: Path, *suffixes: str) -> list[Path]:
    """The files below `folder` with one of these suffixes. `os.walk` does not mind that others take
    folders away meanwhile, as Triton does with those that it is about to name."""
    walked = os.walk(folder)
    return [Path(at, name) for at, _, names in walked for name in names if name.endswith(suffixes)]


def remove_tree(path: Path) -> None:
    """Removes a folder, whatever modes a program has left in it, and though a dying process may
    still be writing there. Raises OSError when it cannot be removed at all."""
    for patience in (0.0, 0.02, 0.1, 0.5):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(patience)
        _unlock(path)
    shutil.rmtree(path)


def _unlock(path: Path) -> None:
    os.chmod(path, stat.S_IRWXU)
    for folder, folders, _ in os.walk(path):
        for name in folders:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner):
                os.chmod(inner, stat.S_IRWXU)


def drop_headers_since(headers: Path, began: float) -> None:
    """Removes precompiled headers written since `began` (a time.time()): the killed child's g++
    may have left one unfinished. One that was whole, and that nobody vouches for, is only built
    again."""
    for compiled in below(headers, ".gch"):
        try:
            vouched = compiled.with_name(compiled.name + DONE).exists()
            if not vouched and compiled.stat().st_mtime >= began:
                compiled.unlink()
        except FileNotFoundError:  # another sandbox was faster
            continue
