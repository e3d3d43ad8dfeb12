"""What is installed with attnfuzz: its configurations and its cases, by the names of the README.

A name that begins with `configs/` or `corpus/` is a path as every other; only where nothing is
there is what is installed under that name taken.
"""

from __future__ import annotations

from pathlib import Path

import attnfuzz

HOME = Path(attnfuzz.__file__).resolve().parent
CASES = HOME / "corpus" / "cases"
FOLDERS = ("configs", "corpus")


def find(path: Path) -> Path:
    """`path`; where there is no such file or folder, what is installed under that name, if any."""
    installed = HOME / path
    named = path.parts[:1] in [(name,) for name in FOLDERS] and ".." not in path.parts
    return installed if named and not _is_there(path) and _is_there(installed) else path


def configuration(name: Path) -> Path:
    """The configuration file `name`: a path, or a bare name such as `overnight`, which is
    `configs/overnight.yaml`."""
    if _is_there(name) or len(name.parts) != 1 or name.is_absolute():
        return find(name)
    bare = Path("configs") / (name if name.suffix == ".yaml" else f"{name}.yaml")
    found = find(bare)
    return found if _is_there(found) else name


def _is_there(path: Path) -> bool:
    """Whether there is something at `path`; what cannot be looked at is, and will say why."""
    try:
        return path.exists()
    except OSError:
        return True
