"""Programs that were stopped at their budget: run again later, once, and never lost."""

from __future__ import annotations

from pathlib import Path

from attnfuzz.actors.shard import Shard, ShardReport, Tally
from attnfuzz.corpus.store.outliers import outliers
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.controller import Campaign
from attnfuzz.fuzz.campaign.known_buckets import load_known
from attnfuzz.fuzz.campaign.shards import Shards
from attnfuzz.fuzz.pool.tasks import (
    Answer,
    ReproRun,
    ReproTask,
    RunTask,
    ShardTask,
    Task,
    WorkerDied,
)
from attnfuzz.generators.model.outcome import Cost, Outcome
from attnfuzz.generators.model.program import Program
from tests.support.fake_pool import PASSED, FakePool, hung, program_of

CONFIG = CampaignConfig(seed=7, minutes=60, shard_size=6, shipped=False, budgets=True)
STOPPED = Outcome(status="stopped", rejection="it used 30 s of CPU", cost=Cost(cpu_s=30.0))


class Dear(FakePool):
    """Programs with a mask are stopped at their budget. Run to the end, those for one query length
    hang, and the others pass."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[Program] = []

    def answer(self, task: Task) -> Answer:
        if isinstance(task, ShardTask):
            tally = Tally(task.shard)
            for place in range(task.shard.size):
                program = program_of(task.shard.index * task.shard.size + place)
                tally.add(program, PASSED if program.mask is None else STOPPED)
            return tally.report(1.0, 0.0)
        if isinstance(task, RunTask):
            self.whole += task.programs
            return [hung() if hangs(program) else PASSED for program in task.programs]
        return super().answer(task)

    def repro(self, task: ReproTask) -> ReproRun:
        return ReproRun(None, "")


def hangs(program: Program) -> bool:
    return program.mask is not None and program.shape.q_len == 16


def campaign(directory: Path, store: Store, pool: FakePool, shards: int = 6) -> Campaign:
    ticks = iter(range(10**9))
    return Campaign(
        CONFIG,
        directory,
        pool,
        store,
        scratch=directory,
        max_shards=shards,
        clock=lambda: next(ticks) * 0.01,
    )


def test_an_outlier_is_run_once_more_and_is_a_finding_only_if_it_fails_then(tmp_path: Path) -> None:
    pool = Dear()
    with Store(tmp_path) as store:
        assert campaign(tmp_path, store, pool).run().ended == "nothing left"
        totals, rows = store.totals(), store.failures()
        assert not store.read(outliers)
    stopped = [program_of(place) for place in range(36) if program_of(place).mask is not None]
    assert totals.by_status["stopped"] == len(stopped) > 3
    assert all(program in pool.whole for program in stopped)
    assert {row.program for row in rows} == {program for program in stopped if hangs(program)}
    assert rows and all(row.outcome.failure for row in rows)


class Dying(Dear):
    """Workers die of every program that is run to its end."""

    def answer(self, task: Task) -> Answer:
        return WorkerDied(3) if isinstance(task, RunTask) else super().answer(task)


def test_an_outlier_whose_workers_died_is_run_when_the_campaign_is_resumed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        campaign(tmp_path, store, Dying()).run()
        left = store.read(outliers)
        assert len(left) == store.totals().by_status["stopped"] > 3
        campaign(tmp_path, store, Dear()).run()
        assert not store.read(outliers)
        assert sum(store.totals().outliers.values()) == len(left)


def test_outliers_of_a_campaign_that_was_killed_are_run_when_it_is_resumed(tmp_path: Path) -> None:
    first = Dear()
    with Store(tmp_path) as store:
        # What a killed campaign leaves: shards are recorded, and nothing was run again.
        for index in range(6):
            report = Dear().answer(ShardTask(Shard(campaign_seed=7, index=index, size=6)))
            assert isinstance(report, ShardReport)
            store.record_shard(report)
        left = [program for program, _ in store.read(outliers)]
        assert campaign(tmp_path, store, first).run().ended == "nothing left"
        again = Dear()
        campaign(tmp_path, store, again).run()
    assert left and all(program in first.whole for program in left)
    assert not again.whole


def test_an_outlier_that_a_known_hang_explains_is_not_run_again(tmp_path: Path) -> None:
    pool = Dear()
    with Store(tmp_path) as store:
        campaign(tmp_path, store, pool).run()
        hang = next(one for one in store.buckets() if one.kind == "hang")
        more = Dear()
        campaign(tmp_path, store, more, shards=40).run()
        states = {row.state for row in store.failures(bucket=hang.id)}
        ended = store.totals()
    drawn = [program_of(place) for place in range(36, 240)]
    stopped = [program for program in drawn if program.mask is not None]
    run = [program for program in stopped if program in more.whole]
    assert ended.by_status["stopped"] > len(stopped)
    assert len(run) < len(stopped) / 2
    assert State.DONE in states


def buckets(directory: Path, store: Store) -> BucketIndex:
    return BucketIndex(store, directory, load_known(CONFIG, "2.13.0"))


def test_a_configuration_can_do_without_budgets(tmp_path: Path) -> None:
    for budgets in (True, False):
        config = CONFIG.model_copy(update={"budgets": budgets})
        with Store(tmp_path) as store:
            assert Shards(config, store, buckets(tmp_path, store), 1).take(0).budgets is budgets
