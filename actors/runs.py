"""How a worker is to run programs: declared once, for a pool's tasks and for what runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from attnfuzz.actors.sandbox.job import Deadlines

Until = Literal["failed", "not failed"] | None


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How programs are run. `deadlines` replace the worker's own; without `confirm_hang` a missed
    deadline is a hang at once. `until` ends the run after the first program that did, or did not,
    fail: the others then have no outcome. Without a `target` it is the worker's first; `toolchain`
    is an interpreter other than the worker's."""

    deadlines: Deadlines | None = None
    confirm_hang: bool = True
    until: Until = None
    target: str | None = None
    toolchain: str | None = None
