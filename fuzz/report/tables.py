"""What a person is shown about buckets: rows, worst first, as rich tables and as JSON.

Everything here is a pure function of rows; `fuzz.report.findings` makes the rows from a campaign's
store and its corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.corpus.decisions.status import CAME_BACK
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import plain
from attnfuzz.generators.model.outcome import SEVERITY


@dataclass(frozen=True, kw_only=True)
class Row:
    """One bucket as triage shows it.

    `runs`, `failures`: the confirmation's count. `repro_lines`: lines of the minimized `repro.py`,
    None while there is none. `script_runs`: how often that script failed by itself ("3/3").
    `occurrences`: failures of the campaign that were taken for this cause. `known_issue`: as what
    it is known, a shipped bucket ("shipped: 4080b6d1") or a record of a known issue, whose public
    thread is `thread`. `where`: its folder in the corpus. `target`: what the program that speaks
    for it ran on, or was compiled for. `regression`: it passes with the campaign's baseline.
    `severity`: 0 to 100, worse is higher; `strangeness`: how far the program that speaks for it is
    from what models do; see `corpus.severity`. Of a corpus' bucket: the kind of the `decision` in
    force, or "expired", and the `last_event` of its history.
    """

    id: str
    kind: str
    layer: str | None
    title: str
    state: str
    runs: int = 0
    failures: int = 0
    repro_lines: int | None = None
    script_runs: str | None = None
    occurrences: int = 0
    known_issue: str | None = None
    thread: str | None = None
    where: str | None = None
    target: str = DEFAULT
    regression: bool = False
    severity: int = 0
    strangeness: int = 0
    decision: str = ""
    last_event: str | None = None

    @property
    def flaky(self) -> bool:
        """Did it fail in some of its confirmation runs but not in all?"""
        return self.failures < self.runs

    @property
    def only_here(self) -> bool:
        """Did its script never fail in a clean process? What the sandbox saw may be our fault."""
        failed, _, runs = (self.script_runs or "").partition("/")
        return failed == "0" and runs not in ("", "0")

    @property
    def reliability(self) -> str:
        """How often it failed of how many runs: "5/5", or "-" before confirmation."""
        return f"{self.failures}/{self.runs}" if self.runs else "-"


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a campaign has executed: counts of programs by status, and shards; CPU seconds by what
    they were spent on; how many findings counterfactuals gave to a known cause, how many of those
    were minimized all the same, and the ones that turned out to be of another; its longest waits,
    in seconds; how many programs that were stopped have ended how since; the CPU seconds that
    programs were predicted to take, and those that they took."""

    shards: int = 0
    executed: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    attributed: int = 0
    attributed_checked: int = 0
    attributed_wrong: Sequence[str] = ()
    longest: Mapping[str, float] = field(default_factory=dict)
    outliers: Mapping[str, int] = field(default_factory=dict)
    predicted: tuple[float, float] = (0.0, 0.0)


def rank(row: Row) -> tuple[bool, bool, int, int, bool, bool, int, str]:
    """Sorts rows worst first: those whose script never failed last; regressions, then by severity,
    then by kind, new and what came back before known, reliable before flaky, then by count."""
    kind = SEVERITY.get(row.kind, len(SEVERITY))
    known = row.known_issue is not None and row.state != CAME_BACK
    regresses = row.regression and not known
    rest = (-row.severity, kind, known, row.flaky, -row.occurrences, row.id)
    return (row.only_here, not regresses, *rest)


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """`rows` in the order of triage."""
    return sorted(rows, key=rank)


def table(rows: Sequence[Row]) -> Table:
    """The triage table, in the order of `rows`."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    grid.add_column("bucket", no_wrap=True)
    grid.add_column("kind", no_wrap=True)
    grid.add_column("layer", no_wrap=True)
    elsewhere = any(row.target != DEFAULT for row in rows)
    if elsewhere:
        grid.add_column("target", no_wrap=True)
    grid.add_column("sev", justify="right")
    grid.add_column("odd", justify="right")
    grid.add_column("fails", justify="right")
    grid.add_column("script", justify="right")
    grid.add_column("lines", justify="right")
    grid.add_column("seen", justify="right")
    grid.add_column("state", no_wrap=True)
    grid.add_column("what", ratio=1, overflow="fold")
    for row in rows:
        what = Text(plain(row.title))
        if row.known_issue is not None:
            what = Text.assemble((f"known: {plain(row.known_issue)} ", "dim"), what)
        if row.regression:
            what = Text.assemble(("regression ", "bold"), what)
        grid.add_row(
            row.id,
            Text(row.kind, style="dim" if row.known_issue is not None else "bold"),
            row.layer or "-",
            *([row.target] if elsewhere else []),
            str(row.severity),
            str(row.strangeness),
            row.reliability,
            row.script_runs or "-",
            "-" if row.repro_lines is None else str(row.repro_lines),
            str(row.occurrences),
            row.state,
            what,
        )
    return grid


def summary(totals: Totals, rows: Sequence[Row]) -> str:
    """One line: what was run and how many causes were found."""
    by_status = sorted(totals.by_status.items())
    counts = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in by_status)
    known = sum(row.known_issue is not None for row in rows)
    run = f"{counted(totals.executed, 'program')} in {counted(totals.shards, 'shard')}"
    run += f" ({counts or 'none'})"
    return f"{run}; buckets: {len(rows) - known} new, {known} known"


def spent(totals: Totals) -> list[str]:
    """Lines on where the CPU time went, most first, and on what was attributed."""
    whole = sum(totals.cpu.values())
    lines = []
    if whole:
        most = sorted(totals.cpu.items(), key=lambda one: (-one[1], one[0]))
        shares = ", ".join(f"{seconds / whole:.0%} {name}" for name, seconds in most)
        lines.append(f"{whole:,.0f} CPU s: {shares}")
    if totals.attributed:
        told = counted(totals.attributed, "finding")
        wrong = len(totals.attributed_wrong)
        checks = f"{totals.attributed_checked} minimized all the same, {wrong} of another cause"
        lines.append(f"{told} given to a known cause by counterfactuals, {checks}")
        lines += [f"  {one}" for one in totals.attributed_wrong]
    if totals.predicted[0]:
        guess, took = totals.predicted
        lines.append(f"new programs took {took:,.0f} CPU s; {guess:,.0f} were predicted")
    if totals.outliers:
        ends = ", ".join(f"{count} {how}" for how, count in sorted(totals.outliers.items()))
        lines.append(f"of the programs that were stopped, since: {ends}")
    waits = [f"{seconds:,.0f} s {name}" for name, seconds in sorted(totals.longest.items())]
    if waits:
        lines.append(f"longest: {', '.join(waits)}")
    return lines


def triage(totals: Totals, rows: Iterable[Row], apart: Iterable[Row], where: str) -> RenderableType:
    """The summary, the buckets, what has no bucket (flaky, set aside, or not looked into yet), and
    how to go on from `where`, the campaign's directory."""
    ordered, others = worst_first(rows), worst_first(apart)
    parts: list[RenderableType] = [Text(summary(totals, ordered))]
    parts += [Text(plain(line)) for line in spent(totals)]
    if ordered:
        parts += ["", table(ordered)]
    if others:
        parts += [
            "",
            Text("in no bucket: flaky, set aside, or not looked into yet", style="bold"),
            "",
        ]
        parts.append(table(others))
    if ordered or others:
        first = (ordered or others)[0].id
        parts += ["", Text(f"attnfuzz show {first} --dir {where}   shows everything about one")]
    if ordered:
        parts.append(Text(f"{where}/corpus   holds a folder for each bucket"))
    if not ordered and not others:
        parts.append(Text(f"nothing failed; {where} holds what was run"))
    return Group(*parts)


def triage_json(
    totals: Totals, rows: Iterable[Row], apart: Iterable[Row], where: str
) -> dict[str, Any]:
    """The same as data."""
    return {
        "directory": where,
        "shards": totals.shards,
        "executed": totals.executed,
        "by_status": dict(sorted(totals.by_status.items())),
        "cpu_s": {name: round(seconds, 1) for name, seconds in sorted(totals.cpu.items())},
        "attributed": totals.attributed,
        "attributed_checked": totals.attributed_checked,
        "attributed_wrong": list(totals.attributed_wrong),
        "outliers": totals.outliers,
        "longest_s": {name: round(seconds, 1) for name, seconds in sorted(totals.longest.items())},
        "buckets": [row_json(row) for row in worst_first(rows)],
        "apart": [row_json(row) for row in worst_first(apart)],
    }


def row_json(row: Row) -> dict[str, Any]:
    """One row as data; `flaky` is spelled out."""
    return {**vars(row), "flaky": row.flaky}


def facts(pairs: Mapping[str, str]) -> Table:
    """Two columns, names and what they are; for everything that is shown one line at a time."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        grid.add_row(Text(plain(name)), Text(plain(value)))
    return grid
