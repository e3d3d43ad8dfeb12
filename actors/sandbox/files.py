"""Finding and removing files, whatever state they were left in. Standard library only."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path


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


def oldest_beyond(sizes: Mapping[Path, int], most: int) -> list[Path]:
    """The files that were not used for longest, without which the others have `most` bytes."""
    size, oldest = sum(sizes.values()), sorted(sizes, key=lambda one: one.stat().st_mtime)
    before = accumulate((sizes[one] for one in oldest), initial=0)
    return [one for one, gone in zip(oldest, before, strict=False) if size - gone > most]
