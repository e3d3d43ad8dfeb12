"""What `reach.py` measured: as JSON, as tables, and two of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError
from rich.table import Table

from attnfuzz.fuzz.errors import UserError, user_path
from benchmarks.reach_left import left
from benchmarks.reach_lines import OTHER_DEVICES

CPU, PARALLEL, OTHER = "attention", "context parallelism", "attention of other devices"


@dataclass(frozen=True, kw_only=True)
class FileReach:
    """Numbers of lines, ascending: `lines` are the statements in bodies of functions, `reached`
    those of them that some program came to, `traced` those of these that dynamo interpreted and
    nothing executed."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    lines: list[int]
    reached: list[int]
    traced: list[int]


@dataclass(kw_only=True)
class PatternReach:
    """Of one of Inductor's fusion patterns: how many programs it was applied in, and under which of
    the names that it is registered by ("_sfdp_pattern_1_half_inference"), in how many."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    programs: int = 0
    registered: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """A measurement. `statuses` counts all programs by what became of them, `counted` how many of
    them are in the rest: those that passed, unless all were asked for. `files` and `patterns` are
    by name."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    torch: str
    seed: int
    targets: list[str]
    profiles: list[str]
    statuses: dict[str, int]
    counted: int
    files: dict[str, FileReach]
    patterns: dict[str, PatternReach]


_JSON = TypeAdapter(Reach)


def write(reach: Reach, path: Path) -> None:
    """Writes it as JSON. Raises UserError where that is not possible."""
    with user_path(path):
        path.write_bytes(_JSON.dump_json(reach) + b"\n")


def read(path: Path) -> Reach:
    """What `write` has written. Raises UserError for anything else."""
    with user_path(path):
        text = path.read_bytes()
    try:
        return _JSON.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {key}: {first['msg']}; expected what --json writes") from None


# -- one measurement -------------------------------------------------------------------------


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def groups(names: Sequence[str]) -> dict[str, list[str]]:
    """The names of files by the table that they are in."""
    found: dict[str, list[str]] = {CPU: [], PARALLEL: [], OTHER: []}
    for name in names:
        parallel = PARALLEL if "/_context_parallel/" in name else CPU
        found[OTHER if name in OTHER_DEVICES else parallel].append(name)
    return {title: group for title, group in found.items() if group}


def file_tables(reach: Reach) -> list[Table]:
    """A line for each file, and the sum. What is within reach is known of one version of torch."""
    made = []
    for title, names in groups([*reach.files]).items():
        heads = ("file", "lines", "reached", "%", "within reach", "% of these", "only traced")
        table = _table(title, *heads)
        counts = [_counts(reach, name) for name in names]
        sums = tuple(map(sum, zip(*counts, strict=True)))
        for name, count in zip([*names, "all"], [*counts, sums], strict=True):
            lines, reached, within, traced = count
            known = ("-", "-")
            if title == CPU and _is_known(reach):
                known = (str(within), percent(reached, within))
            row = (str(lines), str(reached), percent(reached, lines), *known, str(traced))
            table.add_row(name, *row)
        made.append(table)
    return made


def left_table(reach: Reach) -> Table | None:
    """A line for each family of lines that no passing program comes to, None where they are not
    known of this torch. Those that one came to are told: the family is wrong."""
    if not _is_known(reach):
        return None
    table = _table("out of reach", "family", "lines", "of them reached")
    for name, family in left().families.items():
        lines: list[str] = []
        count = 0
        for file, found in reach.files.items():
            those = left().lines(file, reach.targets).get(name, set()) & {*found.lines}
            count += len(those)
            lines += [f"{file}:{line}" for line in sorted(those & {*found.reached})]
        table.add_row(f"{name}: {family.why}", str(count), ", ".join(lines) or "none")
    return table


def _is_known(reach: Reach) -> bool:
    return reach.torch.partition("+")[0] == left().torch


def _counts(reach: Reach, name: str) -> tuple[int, int, int, int]:
    """Of a file: all lines, those that were reached, those within reach, those only traced."""
    found = reach.files[name]
    out = set().union(*left().lines(name, reach.targets).values()) - {*found.reached}
    within = len({*found.lines} - out)
    return len(found.lines), len(found.reached), within, len(found.traced)


def pattern_table(reach: Reach) -> Table:
    """A line for each pattern: in how many programs it fired, and as what."""
    table = _table("fusion patterns", "pattern", "programs")
    table.add_column("of these, as")
    for name, found in reach.patterns.items():
        shown = (
            f"{registered.removeprefix(name).lstrip('_').replace('_', ' ')}: {programs}"
            for registered, programs in found.registered.items()
        )
        table.add_row(name, str(found.programs) if found.programs else "none", "; ".join(shown))
    return table


def summary(reach: Reach) -> str:
    """One sentence: what was run, and what of it is counted."""
    statuses = ", ".join(f"{number} {status}" for status, number in reach.statuses.items())
    fired = sum(found.programs > 0 for found in reach.patterns.values())
    return (
        f"torch {reach.torch}, seed {reach.seed}, {', '.join(reach.targets)}: {statuses}; "
        f"{reach.counted} are counted; {fired} of {len(reach.patterns)} fusion patterns fired"
    )


# -- two of them -----------------------------------------------------------------------------


def comparison(before: Reach, after: Reach) -> list[Table]:
    """Files with their percentages and the lines gained and lost, and patterns whose number of
    programs differs from or to none. Raises UserError where the lines are not of the same torch."""
    if before.torch != after.torch:
        raise UserError(
            f"the two are of torch {before.torch} and {after.torch}: their lines are not the same"
        )
    made = []
    names = [*after.files, *(name for name in before.files if name not in after.files)]
    for title, group in groups(names).items():
        table = _table(title, "file", "before %", "after %", "gained", "lost")
        sums = [0, 0, 0, 0, 0]
        for name in group:
            old, new = _reached(before, name), _reached(after, name)
            total = len((after.files.get(name) or before.files[name]).lines)
            row = [total, len(old), len(new), len(new - old), len(old - new)]
            sums = [mine + its for mine, its in zip(sums, row, strict=True)]
            _add_compared(table, name, row)
        _add_compared(table, "all", sums)
        made.append(table)
    patterns = _table("fusion patterns", "pattern", "before", "after")
    for name in {**after.patterns, **before.patterns}:
        was, now = (reach.patterns.get(name, PatternReach()).programs for reach in (before, after))
        if bool(was) != bool(now):
            patterns.add_row(name, str(was or "none"), str(now or "none"))
    return [*made, patterns] if patterns.row_count else made


def _reached(reach: Reach, name: str) -> set[int]:
    return set(reach.files[name].reached) if name in reach.files else set()


def _add_compared(table: Table, name: str, row: Sequence[int]) -> None:
    """`row`: lines, reached before, reached after, gained, lost."""
    total, old, new, gained, lost = row
    shown = (percent(old, total), percent(new, total), str(gained or ""), str(lost or ""))
    table.add_row(name, *shown)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right")
    return table
