"""Cases over toolchains: what each case does with each torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from attnfuzz.corpus.case import Case
from attnfuzz.fuzz.replay.session import Places, replay_all
from attnfuzz.fuzz.replay.verdict import Replayed, Verdict, most_common_failure


class Result(StrEnum):
    """What a case does with one toolchain. `FAILS`: as recorded; `REWORDED`: the same failure in
    that release's words; `SOMETIMES`: as recorded in some runs, though it was reliable;
    `OTHERWISE`: it fails, but not as recorded; `REJECTS`: torch refuses it by design, which says
    nothing of the failure; `NOT_RUN`: the toolchain cannot serve its target."""

    FAILS = "fails"
    REWORDED = "fails in other words"
    SOMETIMES = "fails sometimes"
    OTHERWISE = "fails otherwise"
    PASSES = "passes"
    REJECTS = "rejects"
    NOT_RUN = "not run"


AS_RECORDED = (Result.FAILS, Result.REWORDED)


@dataclass(frozen=True)
class Cell:
    """What one case does with one toolchain; `detail` is what differs, what it does instead, or why
    it was not run."""

    result: Result
    detail: str = ""


@dataclass(frozen=True)
class Column:
    """A toolchain, by what it is called, and its cell for each case in their order; `environment`
    is what the first case that ran saw, and empty where none did. `results` are what the cells are
    of, and `there` what each case saw."""

    toolchain: str
    python: str
    cells: tuple[Cell, ...]
    environment: Mapping[str, str]
    results: tuple[Replayed, ...] = ()
    there: tuple[dict[str, str], ...] = ()

    @property
    def torch(self) -> str:
        """Its torch's version, or "?" where nothing ran."""
        return self.environment.get("torch", "?")


def cell_of(result: Replayed) -> Cell:
    """What a replayed case did, as a cell."""
    if result.verdict is Verdict.NOT_RUN:
        return Cell(Result.NOT_RUN, result.why)
    if result.verdict is Verdict.CHANGED:
        other = most_common_failure(result.seen)
        return Cell(Result.OTHERWISE, f"{other.kind}: {other.title}" if other else "")
    if result.verdict is Verdict.FIXED:
        passed = any(one.status == "passed" for one in result.seen)
        return Cell(Result.PASSES if passed else Result.REJECTS)
    if result.verdict is Verdict.FLAKY:
        failed = sum(one.status == "failed" for one in result.seen)
        return Cell(Result.SOMETIMES, f"{failed} of {len(result.seen)} runs")
    differs = next((one.reworded for one in result.seen if one.reworded), None)
    reworded = result.verdict is Verdict.REWORDED
    return Cell(Result.REWORDED, differs or "") if reworded else Cell(Result.FAILS)


def column(
    name: str, python: str, cases: Sequence[Case], folders: Sequence[Path], at: Places
) -> Column:
    """All cases with one toolchain; what it cannot do at all is not run, and no error. Raises
    UserError for what is wrong with the cases themselves."""
    here = replace(at, folders=folders, python=python, lenient=True)
    results, there = replay_all(cases, here)
    environment = next((one for one in there if one), {})
    return Column(
        name, python, tuple(map(cell_of, results)), environment, tuple(results), tuple(there)
    )
