"""Which lines of torch's attention code no passing program comes to, and why.

`reach_left.yaml` has them by file and family, as read in the source of one version of torch. What
is left of a file without them is within reach, however seldom a program comes there.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from attnfuzz.actors.targets.registry import TARGETS

PATH = Path(__file__).with_name("reach_left.yaml")


class Family(BaseModel):
    """Lines for one reason: out of reach on `any` target, on a `cpu` and on what is `simulated`
    there, or on a `cpu` alone."""

    model_config = ConfigDict(extra="forbid")
    out_of_reach: Literal["any", "simulated", "cpu"]
    why: str


class Left(BaseModel):
    """What is left, of the version `torch`: for each of `files` the lines of each of `families`,
    written as "25, 76-81"."""

    model_config = ConfigDict(extra="forbid")
    torch: str
    families: dict[str, Family]
    files: dict[str, dict[str, str]]

    def lines(self, file: str, targets: Iterable[str]) -> dict[str, set[int]]:
        """By family, the lines of `file` that are out of reach on all of `targets`."""
        cards = [TARGETS[name] for name in targets if name != "cpu"]
        beyond = ["any"]
        if all(card.stand_in is not None for card in cards):
            beyond.append("simulated")
        if not cards:
            beyond.append("cpu")
        return {
            family: numbers(text)
            for family, text in self.files.get(file, {}).items()
            if self.families[family].out_of_reach in beyond
        }


def numbers(text: str) -> set[int]:
    """The numbers of "25, 76-81"."""
    found: set[int] = set()
    for part in text.split(", "):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


@cache
def left() -> Left:
    """What `reach_left.yaml` says."""
    return Left.model_validate(yaml.safe_load(PATH.read_text()))
