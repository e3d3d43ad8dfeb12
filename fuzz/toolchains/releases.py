"""Releases of torch, oldest first, and the toolchains that have them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from attnfuzz.fuzz.environment import version
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.toolchains.making import requirement
from attnfuzz.fuzz.toolchains.named import toolchains
from attnfuzz.generators.reading.complaints import mismatch

_RANGE = re.compile(r"(\d+)\.(\d+)\.\.(\d+)\.(\d+)")
MOST = 100
"""Releases of one range."""


@dataclass(frozen=True)
class Release:
    """A release of torch as it was asked for, "2.15" or "2.15.0+cpu"; `python` is the interpreter
    of a toolchain that has it, None where none does."""

    version: str
    python: str | None

    @property
    def toolchain(self) -> str:
        """What a toolchain that is made for it is called."""
        return f"torch-{self.version}"

    def has(self, torch: str) -> bool:
        """Whether the version `torch` is one of this release."""
        parsed = _parsed(torch)
        return parsed is not None and _specifier(self.version).contains(parsed, prereleases=True)


def releases(given: str, where: str) -> list[Release]:
    """The releases of "2.11..2.15", of each minor release the newest patch, or of a list
    "2.12.0,2.12.1,2.13.0". Raises UserError, naming `where`."""
    found = _RANGE.fullmatch(given)
    if found:
        major, first, other, last = map(int, found.groups())
        if major != other or not first < last < first + MOST:
            raise UserError(mismatch(where, "a range like 2.11..2.15, upwards", repr(given)))
        wanted = [f"{major}.{minor}" for minor in range(first, last + 1)]
    else:
        wanted = given.split(",")
        if len(wanted) < 2:
            expected = "a range like 2.11..2.15, or two releases or more like 2.12.0,2.12.1"
            raise UserError(mismatch(where, expected, repr(given)))
    return [Release(one, _having(one, where)) for one in wanted]


def _having(wanted: str, where: str) -> str | None:
    """The interpreter whose torch is `wanted`: ours, if it is that one, else a toolchain's, the
    newest there is."""
    requirement(wanted, where)
    there = {one.python: one.record.torch for one in toolchains()}
    there[sys.executable] = version("torch")
    release = Release(wanted, None)
    fitting = {python: Version(text) for python, text in there.items() if release.has(text)}
    if sys.executable in fitting:
        return sys.executable
    return max(fitting, key=lambda python: (fitting[python], python), default=None)


def _specifier(wanted: str) -> SpecifierSet:
    return SpecifierSet(requirement(wanted, "").removeprefix("torch"))


def _parsed(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:  # "not installed"
        return None
