"""Toolchains that have a name: where they lie, which there are, and what a name stands for.

Each is a folder `NAME` with a virtual environment and `toolchain.json` in it, which is written last
and comes with the folder into its place: what has no such file is no toolchain.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from pydantic import BaseModel, ConfigDict, ValidationError

from attnfuzz.corpus.files import UNFINISHED
from attnfuzz.fuzz.errors import UserError, user_path
from attnfuzz.generators.reading.complaints import mismatch

VARIABLE = "ATTNFUZZ_TOOLCHAINS"
"""The environment variable that names another folder for them."""

RECORD = "toolchain.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


class Record(BaseModel):
    """What is written of a toolchain: the versions in it, and the packages asked for besides."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    torch: str
    python: str
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolchain:
    """A toolchain of that `name` in `folder`."""

    name: str
    folder: Path
    record: Record

    @property
    def python(self) -> str:
        """The path of its interpreter."""
        return str(interpreter_in(self.folder))


def home() -> Path:
    """The folder of all toolchains, which need not be there yet."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(os.path.abspath(Path(given).expanduser()))
    return platformdirs.user_data_path("attnfuzz") / "toolchains"


def interpreter_in(folder: Path) -> Path:
    """The interpreter of the virtual environment in `folder`. It is a link, which makes it one."""
    return folder / "bin" / "python"


def check_name(name: str) -> None:
    """Raises UserError unless a toolchain may have that name."""
    if not NAME.fullmatch(name):
        expected = "at most 64 letters, digits and . _ + -, the first a letter or digit"
        raise UserError(mismatch("toolchain NAME", expected, repr(name)))


def find(name: str) -> Toolchain | None:
    """The toolchain of that name; None where there is none that is whole."""
    folder = home() / name
    if not NAME.fullmatch(name):
        return None
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
        record = Record.model_validate_json(text)
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, ValidationError):
        return None
    return Toolchain(name, folder, record) if interpreter_in(folder).is_file() else None


def toolchains() -> list[Toolchain]:
    """All of them, by name. Raises UserError where the folder cannot be read."""
    return [one for one in map(find, _names()) if one is not None]


def unusable() -> list[str]:
    """Names of those that were never finished, or have been broken since."""
    return sorted(
        {name.removeprefix(UNFINISHED) for name in _names(hidden=True) if find(name) is None}
    )


def _names(hidden: bool = False) -> list[str]:
    folder = home()
    with user_path(folder):
        if not folder.is_dir():
            return []
        entries = sorted(one.name for one in os.scandir(folder) if one.is_dir())
    return [
        one for one in entries if NAME.fullmatch(one) or (hidden and one.startswith(UNFINISHED))
    ]


def resolve(given: str, where: str, base: Path = Path()) -> Path:
    """The interpreter that `given`, which `where` names, stands for: a toolchain's name, or a path
    as seen from `base`. A toolchain comes first; `./NAME` is always a path. Raises UserError where
    it is neither."""
    if NAME.fullmatch(given):
        toolchain = find(given)
        if toolchain is not None:
            return Path(toolchain.python)
    # Not resolved: a virtual environment's interpreter is a link that must keep its name.
    path = Path(os.path.abspath(base / Path(given).expanduser()))
    with user_path(path):
        if path.is_file():
            return path
    expected = "a Python interpreter or the name of a toolchain"
    got = f"{path}, which is not a file" if os.sep in given else f"{given}, which is neither"
    raise UserError(mismatch(where, expected, got))


def shown(python: str) -> str:
    """What reports call the toolchain of the interpreter `python`: its name, else the folder of the
    virtual environment, else the interpreter's path."""
    path = Path(python)
    if path == interpreter_in(path.parent.parent):
        folder = path.parent.parent
        return (
            folder.name if folder.parent == home() or (folder / "pyvenv.cfg").exists() else python
        )
    return python
