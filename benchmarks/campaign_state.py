"""What a campaign's directory holds, read from outside, and what must be true of it at any moment.

Every function that judges gives sentences, one per violation; none is right.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from attnfuzz.corpus.case import CaseError, find_cases, read_bucket, read_case
from attnfuzz.corpus.files import UNFINISHED
from attnfuzz.corpus.store.rows import ENDS
from attnfuzz.corpus.store.rows import State as FailureState
from attnfuzz.corpus.store.store import DATABASE, Store, StoreError
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.strategies.shards import shard_programs

CORPUS = "corpus"
BEHIND = """SELECT "index", coalesce(json_extract(report, '$.behind'), 0) FROM shards"""


@dataclass(frozen=True)
class State:
    """A campaign at one moment.

    `shards` maps an index to how many programs it ran, `behind` to how many of these it ran beside
    those that it drew, behind a known failure; `executed` is the sum that the campaign shows,
    `failures` maps a program's id to its state, `shard_of` to the shard that met it;
    `buckets` maps an id to its strong key and trigger. `counted` are the strong keys that shards
    have counted, `recorded` those of failures and of buckets, whose smallest program may crash with
    a key of its own; `done` are the buckets with a failure that is done.
    `cases` are folders on disk, `problems` what could not be read.
    """

    shards: dict[int, int] = field(default_factory=dict)
    behind: dict[int, int] = field(default_factory=dict)
    executed: int = 0
    failures: dict[str, FailureState] = field(default_factory=dict)
    shard_of: dict[str, int] = field(default_factory=dict)
    buckets: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    recorded: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()
    cases: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def inspect(directory: Path) -> State:
    """The state of the campaign in `directory`, which is not touched: the database is read from a
    copy, since opening it would settle what a crash has left in its journal."""
    cases, problems = _cases(directory / CORPUS)
    if not (directory / DATABASE).exists():
        return State(cases=cases, problems=problems)
    with tempfile.TemporaryDirectory(prefix="inspect-") as made:
        for path in directory.glob(f"{DATABASE}*"):
            shutil.copy(path, made)
        database = Path(made) / DATABASE
        try:
            problems += _integrity(database)
            return _read(database, cases, problems)
        except (StoreError, sqlite3.Error) as error:
            return State(cases=cases, problems=(*problems, f"{DATABASE}: {error}"))


def _integrity(database: Path) -> tuple[str, ...]:
    connection = sqlite3.connect(database)
    try:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    finally:
        connection.close()
    return tuple(f"{DATABASE}: {one}" for one in found if one != "ok")


def _read(database: Path, cases: tuple[str, ...], problems: tuple[str, ...]) -> State:
    with Store(database, create=False) as store:
        failures, totals = store.failures(), store.totals()
        buckets = {b.id: (b.strong, tuple(sorted(b.trigger))) for b in store.buckets()}
    connection = sqlite3.connect(database)
    try:
        shards = dict(connection.execute('SELECT "index", executed FROM shards'))
        behind = dict(connection.execute(BEHIND))
    finally:
        connection.close()
    return State(
        shards=shards,
        behind=behind,
        executed=totals.executed,
        failures={row.program_id: row.state for row in failures},
        shard_of={row.program_id: row.shard for row in failures if row.shard is not None},
        buckets=buckets,
        counted=frozenset(totals.by_key),
        recorded=frozenset(row.strong for row in failures) | {key for key, _ in buckets.values()},
        done=frozenset(row.bucket or "" for row in failures if row.state is FailureState.DONE),
        cases=cases,
        problems=problems,
    )


def _cases(corpus: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The cases on disk, and those (and buckets) that cannot be read. A folder that is being
    written has a name of its own and counts as neither."""
    problems: list[str] = []
    folders = [path for path in _folders(corpus) for path in _folders(path)]
    for read, folder in [
        *((read_bucket, path) for path in _folders(corpus)),
        *((read_case, path) for path in folders),
    ]:
        try:
            read(folder)
        except CaseError as error:
            problems.append(f"not whole: {error}")
    if folders and find_cases([corpus]) != sorted(folders):
        problems.append(f"{corpus}: a case is not where cases are")
    return tuple(str(path.relative_to(corpus)) for path in folders), tuple(problems)


def _folders(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.is_dir() and not inner.name.startswith(UNFINISHED):
                yield inner


def damage(state: State, shard_size: int) -> list[str]:
    """What must hold at any moment, killed or not."""
    found = list(state.problems)
    for index, executed in state.shards.items():
        if executed - state.behind.get(index, 0) != shard_size:
            found.append(f"shard {index} counts {executed} programs, not {shard_size}")
    if state.executed != sum(state.shards.values()):
        found.append(f"{state.executed} programs counted, {sum(state.shards.values())} in shards")
    buckets = Counter(state.buckets.values())
    found += [f"two buckets of {key}" for key, n in buckets.items() if n > 1]
    found += [
        f"counted, but no failure is recorded: {key}"
        for key in sorted(state.counted - state.recorded)
    ]
    names = Counter(case.rpartition("/")[2] for case in state.cases)
    found += [f"case {name} is there {n} times" for name, n in names.items() if n > 1]
    return found


def grown(before: State, after: State) -> list[str]:
    """What must hold between two moments: nothing found is lost, and no end is taken back."""
    found = [f"shard {i} is lost" for i in sorted(before.shards.keys() - after.shards.keys())]
    for program, state in before.failures.items():
        now = after.failures.get(program)
        if now is None:
            found.append(f"failure {program} is lost")
        elif state in ENDS and now is not state:
            found.append(f"failure {program} was {state} and is {now}")
    for name in sorted(before.buckets.keys() - after.buckets.keys()):
        found.append(f"bucket {name} is lost")
    found += [f"case {case} is lost" for case in before.cases if case not in after.cases]
    return found


def once(directory: Path, state: State) -> list[str]:
    """What must hold besides when the campaign has ended: something was found, each failure is of
    the shard that is said to have met it, what is done has a case, and nothing is half-written."""
    found = [] if state.buckets else ["nothing was found, so nothing is shown"]
    found += _strangers(directory, state)
    for name in sorted(state.done):
        if not any(case.startswith(f"{name}-") for case in state.cases):
            found.append(f"bucket {name} is done and has no case")
    for path in sorted(directory.rglob("*")):
        if path.name.startswith(UNFINISHED) or path.suffix == ".tmp":
            found.append(f"file is left: {path}")
    return found


def _strangers(directory: Path, state: State) -> list[str]:
    """Failures that their shard, drawn afresh, does not contain."""
    with Store(directory, create=False) as store:
        campaign = store.campaign()
    if campaign is None:
        return ["the campaign's configuration is lost"]
    size, profiles = campaign.config["shard_size"], campaign.config["profiles"]
    drawn = {
        index: {program_id(p) for p in shard_programs(campaign.seed, index, size, profiles)}
        for index in sorted(set(state.shard_of.values()))
    }
    return [
        f"failure {program} is not of shard {index}"
        for program, index in state.shard_of.items()
        if program not in drawn[index]
    ]
