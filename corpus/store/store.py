"""The store of a campaign: what was run, found and done, and so what is left to do.

One SQLite database. Each event is one transaction, on disk before the call returns; a process that
dies at any instant leaves a readable database without half an event. Recording the same event
twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, case, delete, func, select, update

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store import listing
from attnfuzz.corpus.store.environments import environment_of, record_environment
from attnfuzz.corpus.store.failure_rows import failure_rows
from attnfuzz.corpus.store.inserts import as_found, insert_failure, put_bucket
from attnfuzz.corpus.store.machine_deaths import record_death
from attnfuzz.corpus.store.opening import Reading, Writing
from attnfuzz.corpus.store.outliers import ended_how
from attnfuzz.corpus.store.progress import Progress, record_progress
from attnfuzz.corpus.store.rows import (
    ENDS,
    CampaignRow,
    CountRow,
    FailureRow,
    Report,
    State,
    Totals,
    VariantRow,
)
from attnfuzz.corpus.store.schema import (
    BUCKETS,
    CAMPAIGN,
    COUNTS,
    FAILURES,
    SHARDS,
    VARIANTS,
    StoreError,
    add_counts,
    keep_most,
    transaction,
    upsert,
)
from attnfuzz.corpus.store.severities import in_parts, record_severity
from attnfuzz.corpus.store.shard_rows import TIMES, insert_shard
from attnfuzz.corpus.store.stored import bucket_row, row_of
from attnfuzz.generators.model.codec import outcome_to_data, to_data
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program

__all__ = ["DATABASE", "FailureRow", "State", "Store", "StoreError", "Totals"]

DATABASE = "campaign.sqlite"

Read = TypeVar("Read")


class Store:
    """The store at `path`: a database file, or a folder for one named `DATABASE`. It is made where
    it is missing, unless `create` is False: then it is only read, and nothing there is changed.
    Every method may raise StoreError, one sentence."""

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        path = Path(path)
        self.path = path / DATABASE if path.is_dir() else path
        self._opened = Writing(self.path) if create else Reading(self.path)
        self._engine = self._opened.engine
        self.guard: Callable[[], None] = lambda: None
        """Called before anything is written: it raises where this process may not any more."""

    def close(self) -> None:
        """Closes the database."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # The campaign

    def begin(self, seed: int, config: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        """Write down what the campaign is; StoreError when it was begun with another seed. A
        resumed campaign's configuration and versions replace those recorded, but what was found
        before keeps its own (see `environment`)."""
        with self._writing() as connection:
            found = connection.execute(select(CAMPAIGN.c.seed)).scalar_one_or_none()
            if found is not None and found != seed:
                raise StoreError(
                    f"{self.path}: the campaign was begun with seed {found}, not {seed}"
                )
            record_environment(connection, versions)
            values = {"one": 1, "seed": seed, "config": dict(config), "versions": dict(versions)}
            upsert(connection, CAMPAIGN, values, ("one",))

    def campaign(self) -> CampaignRow | None:
        """What the campaign was begun with; None before `begin`."""
        with self._reading() as connection:
            columns = (CAMPAIGN.c.seed, CAMPAIGN.c.config, CAMPAIGN.c.versions)
            query = select(*columns).where(CAMPAIGN.c.one == 1)
            row = connection.execute(query).mappings().one_or_none()
        return None if row is None else row_of(CampaignRow, row, self.path, 1)

    def environment(self, failure: FailureRow) -> dict[str, str]:
        """The versions that the campaign had when the failure was found, and on what hardware
        that was, where workers had different."""
        with self._reading() as connection:
            found = environment_of(connection, failure.number, self.path)
        return found | {"hardware": failure.hardware} if failure.hardware else found

    def record_progress(self, now: Progress) -> None:
        """Write down how far the campaign is."""
        with self._writing() as connection:
            record_progress(connection, now)

    def read(self, query: Callable[[Connection, Path], Read]) -> Read:
        """What `query`, one of `listing` or `progress`, reads."""
        with self._reading() as connection:
            return query(connection, self.path)

    # Shards

    def record_shard(self, report: Report) -> list[FailureRow]:
        """Record a shard, and give the failures that are new, in the report's order. A shard
        recorded before changes nothing and gives nothing."""
        return self.record_shards([report])

    def record_shards(self, reports: Iterable[Report]) -> list[FailureRow]:
        """The same of several at once, which takes the disk little longer than one."""
        with self._writing() as connection:
            added = [insert_shard(connection, report) for report in reports]
            parts = [FAILURES.c.number.in_(numbers) for numbers in added]
            return [row for part in parts for row in self._failures(connection, part)]

    def count(self, sort: str, values: Mapping[str, float]) -> None:
        """Add to the sums of a sort, by name: see `Totals`."""
        with self._writing() as connection:
            add_counts(connection, sort, values)

    def count_all(self, sorts: Mapping[str, Mapping[str, float]]) -> None:
        """Add to the sums of several sorts in one write."""
        with self._writing() as connection:
            for sort, values in sorts.items():
                add_counts(connection, sort, values)

    def keep_longest(self, values: Mapping[str, float]) -> None:
        """Write down waits, in seconds by their names, that are longer than those recorded."""
        with self._writing() as connection:
            keep_most(connection, "longest", values)

    def record_death(self, program: str, machine: str) -> None:
        """Write down that a machine has died while the program with that id ran."""
        with self._writing() as connection:
            record_death(connection, program, machine)

    def shard_indices(self) -> list[int]:
        """The indices of the shards that are recorded, in order."""
        with self._reading() as connection:
            query = select(SHARDS.c.index).order_by(SHARDS.c.index)
            return list(connection.execute(query).scalars())

    def totals(self) -> Totals:
        """Sums over all shards."""
        sums: dict[str, dict[str, float]] = {}
        with self._reading() as connection:
            for row in connection.execute(select(COUNTS).order_by(COUNTS.c.name)).mappings():
                one = row_of(CountRow, row, self.path, row["name"])
                sums.setdefault(one.sort, {})[one.name] = one.value
        whole = {sort: {n: int(v) for n, v in named.items()} for sort, named in sums.items()}
        times = {name: sums.get("sum", {}).get(name, 0.0) for name in TIMES}
        return Totals(
            shards=whole.get("sum", {}).get("shards", 0),
            executed=whole.get("sum", {}).get("executed", 0),
            by_status=whole.get("status", {}),
            by_key=whole.get("key", {}),
            rejections=whole.get("rejection", {}),
            features=whole.get("feature", {}),
            cpu=sums.get("cpu", {}),
            attributed=whole.get("attributed", {}),
            attributed_checked=whole.get("sum", {}).get("attributed_checked", 0),
            attributed_wrong=whole.get("attributed_wrong", {}),
            longest=sums.get("longest", {}),
            outliers=ended_how(whole.get("outlier", {})),
            **times,
        )

    # Failures

    def add_failure(
        self,
        program: Program,
        outcome: Outcome,
        shard: int | None = None,
        target: str = "cpu",
        hardware: str | None = None,
    ) -> FailureRow | None:
        """Record a failure met outside a shard's run; None when its program is recorded already."""
        with self._writing() as connection:
            number = insert_failure(connection, program, outcome, shard, target, hardware)
            if number is None:
                return None
            return self._failures(connection, FAILURES.c.number == number)[0]

    def failure(self, program: str) -> FailureRow | None:
        """The failure of the program with that id."""
        with self._reading() as connection:
            return next(iter(self._failures(connection, FAILURES.c.program_id == program)), None)

    def failures(
        self, *, state: State | None = None, bucket: str | None = None, strong: str | None = None
    ) -> list[FailureRow]:
        """The failures that match, in the order they were recorded."""
        wanted = {"state": state, "bucket": bucket, "strong": strong}
        given = [FAILURES.c[name] == value for name, value in wanted.items() if value is not None]
        with self._reading() as connection:
            return self._failures(connection, *given)

    def numbered(self, numbers: Collection[int]) -> list[FailureRow]:
        """The failures with these numbers, in the order they were recorded."""
        with self._reading() as connection:
            parts = [FAILURES.c.number.in_(some) for some in in_parts(numbers)]
            return [row for part in parts for row in self._failures(connection, part)]

    def pending(self) -> list[FailureRow]:
        """The failures with which something is left to do, in the order they were recorded."""
        with self._reading() as connection:
            return self._failures(connection, FAILURES.c.state.not_in(sorted(ENDS)))

    def states(self) -> dict[State, int]:
        """How many failures are in each state."""
        return dict(Counter(row.state for row in self.failures()))

    def update_failure(
        self,
        program: str,
        state: State,
        *,
        runs: int | None = None,
        failures: int | None = None,
        bucket: Bucket | None = None,
        best: tuple[Program, Outcome] | None = None,
        evaluated: int | None = None,
    ) -> None:
        """One step with the failure of the program with that id; what is not given stays. A
        `bucket` is saved with it, in the same transaction."""
        values: dict[str, Any] = {"state": state.value}
        if runs is not None:
            values["runs"] = runs
        if failures is not None:
            values["failures"] = failures
        if evaluated is not None:
            values["evaluated"] = evaluated
        if best is not None:
            values["best"], values["best_outcome"] = to_data(best[0]), outcome_to_data(best[1])
        with self._writing() as connection:
            if bucket is not None:
                put_bucket(connection, bucket)
                values["bucket"] = bucket.id
            query = update(FAILURES).where(FAILURES.c.program_id == program).values(values)
            number = connection.execute(query.returning(FAILURES.c.number)).scalar_one_or_none()
            if number is None:
                raise StoreError(f"{self.path}: no failure of program {program} is recorded")
            if best is not None and best[1].failure is not None:
                record_severity(connection, number, best[0], best[1].failure)

    def reassess(self, program: str, outcome: Outcome) -> FailureRow:
        """The failure of the program with that id is `outcome`'s, and as if just found."""
        with self._writing() as connection:
            this = FAILURES.c.program_id == program
            (there,) = self._failures(connection, this)
            given = there.program
            connection.execute(update(FAILURES).where(this).values(as_found(given, outcome)))
            (now,) = self._failures(connection, this)
            record_severity(connection, now.number, *now.simplest)
            return now

    def rekey(self) -> None:
        """Compute the strong keys of pending failures and of buckets afresh: the rules for keys may
        be others than when they were recorded."""
        with self._writing() as connection:
            rows = self._failures(connection, FAILURES.c.state.not_in(sorted(ENDS)))
            for row in rows:
                strong = signature(row.failure, row.program).strong
                if strong != row.strong:
                    this = FAILURES.c.number == row.number
                    connection.execute(update(FAILURES).where(this).values(strong=strong))
            for name, data in connection.execute(select(BUCKETS.c.id, BUCKETS.c.data)).all():
                bucket = bucket_row(name, data, self.path)
                keys = [
                    signature(row.best_outcome.failure, row.best).strong
                    for row in self._failures(connection, FAILURES.c.bucket == bucket.id)
                    if row.best and row.best_outcome and row.best_outcome.failure
                ]
                if keys and bucket.strong not in keys:
                    put_bucket(connection, replace(bucket, strong=keys[0]))

    # Buckets

    def save_bucket(self, bucket: Bucket) -> None:
        """Record a bucket, or what is known of it now."""
        with self._writing() as connection:
            put_bucket(connection, bucket)

    def withdraw_bucket(self, name: str) -> None:
        """Forget the bucket with that id: its failures are flaky, and have none."""
        with self._writing() as connection:
            flaky = {"state": State.FLAKY.value, "bucket": None}
            connection.execute(update(FAILURES).where(FAILURES.c.bucket == name).values(flaky))
            connection.execute(delete(BUCKETS).where(BUCKETS.c.id == name))

    def bucket(self, name: str) -> Bucket | None:
        """The bucket with that id."""
        return next((bucket for bucket in self.buckets() if bucket.id == name), None)

    def buckets(self) -> list[Bucket]:
        """All buckets, in the order in which their first failure was recorded."""
        first = func.min(FAILURES.c.number)
        query = (
            select(BUCKETS.c.id, BUCKETS.c.data)
            .outerjoin(FAILURES, FAILURES.c.bucket == BUCKETS.c.id)
            .group_by(BUCKETS.c.id)
            .order_by(case((first.is_(None), 1), else_=0), first, BUCKETS.c.id)
        )
        with self._reading() as connection:
            found = connection.execute(query)
            return [bucket_row(name, data, self.path) for name, data in found]

    def occurrences(self) -> dict[str, int]:
        """How often each bucket was seen: its failures, and those of its key that were counted
        only (given to the first bucket of that key)."""
        return self.read(listing.counted).occurrences(self.totals().by_key)

    # Variants

    def save_variants(self, program: str, results: Mapping[str, str]) -> None:
        """Record what the variants of a failure's minimized program did, by the variant's name;
        `program` is the id of the program that was found, as what it is minimized to may be another
        failure's too."""
        with self._writing() as connection:
            for name, result in results.items():
                values = {"program_id": program, "name": name, "result": result}
                upsert(connection, VARIANTS, values, ("program_id", "name"))

    def variants(self, program: str) -> dict[str, str]:
        """The same of the failure of the program with that id."""
        query = select(VARIANTS.c.name, VARIANTS.c.result).where(VARIANTS.c.program_id == program)
        with self._reading() as connection:
            rows = connection.execute(query.order_by("name")).mappings()
            results = [row_of(VariantRow, row, self.path, row["name"]) for row in rows]
        return {one.name: one.result for one in results}

    def with_variant(self, prefix: str, result: str) -> set[str]:
        """Ids of the programs that have a variant whose name begins so, with that result."""
        query = select(VARIANTS.c.program_id).where(
            VARIANTS.c.name.startswith(prefix, autoescape=True), VARIANTS.c.result == result
        )
        with self._reading() as connection:
            return set(connection.execute(query).scalars())

    def _failures(self, connection: Connection, *conditions: Any) -> list[FailureRow]:
        return failure_rows(connection, self.path, *conditions)

    def _writing(self) -> Any:
        self.guard()
        return transaction(self._engine, self.path, writes=True)

    def _reading(self) -> Any:
        return transaction(self._engine, self.path, writes=False)
