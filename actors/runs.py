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
    is an interpreter other than the worker's. A program that still compiles
    after `budget_s` CPU seconds is stopped; with a budget it is not run with fewer steps too, to
    see how its compile time grows."""

    deadlines: Deadlines | None = None
    confirm_hang: bool = True
    until: Until = None
    target: str | None = None
    toolchain: str | None = None
    budget_s: float | None = None


@dataclass(frozen=True)
class ReproTask:
    """Run a script `runs` times in clean processes; gives a `ReproRun` for each.

    `python` is the interpreter, `preload` the files loaded before the script, `timeout_s` the
    seconds each run may take, `idle_s` for how many of them all of its processes may sleep (None:
    all of them), `folder` an existing folder for its temporary files, `processes` how many run it
    together, as `torchrun` would start them, `target` that whose worker is to run it, `disk_mb` how
    many MiB it may write to its folder, `cpus` those of the worker that runs it.
    """

    text: str
    python: str
    folder: str
    runs: int = 3
    timeout_s: float = 120.0
    idle_s: float | None = None
    preload: tuple[str, ...] = ()
    processes: int = 1
    target: str | None = None
    disk_mb: int = 2048
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReproRun:
    """How a script ended: its exit status (negative: the signal; None: it was killed as one that
    hangs), the last 4 MiB of what it wrote to stderr, and the CPU seconds that it used."""

    status: int | None
    stderr: str
    cpu_s: float = 0.0
