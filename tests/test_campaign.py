"""The controller on a pool of deterministic answers: what it finds, keeps, and goes on with after
being killed at any event."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.corpus.bucket import Tried
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.fuzz.campaign.claim import claim
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.controller import Campaign, CampaignResult
from attnfuzz.fuzz.campaign.interruptions import CampaignError
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, ShardTask, Task, WorkerDied
from attnfuzz.fuzz.report.live import Snapshot
from attnfuzz.generators.model.outcome import FailureKind, Outcome
from tests.support.fake_pool import PASSED, FakePool, Slow, hung, raised

SHARDS = 4
PER_SHARD = 6


class Clock:
    """Seconds that pass whenever somebody looks."""

    def __init__(self, step: float = 0.01) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


CONFIG = CampaignConfig(seed=7, minutes=60, shard_size=PER_SHARD, shipped=False)


def campaign(directory: Path, store: Store, pool: FakePool | None = None, **more: Any) -> Campaign:
    more = {"max_shards": SHARDS, "clock": Clock(), "scratch": directory, **more}
    config = more.pop("config", CONFIG)
    return Campaign(config, directory, pool or FakePool(), store, **more)


def run(directory: Path, **more: Any) -> CampaignResult:
    directory.mkdir(exist_ok=True)
    with Store(directory) as store:
        return campaign(directory, store, **more).run()


def found(directory: Path) -> dict[str, Any]:
    """Everything that a campaign leaves behind, timing apart."""
    with Store(directory, create=False) as store:
        totals = store.totals()
        return {
            "executed": totals.executed,
            "by_key": dict(totals.by_key),
            "states": {row.program_id: row.state for row in store.failures()},
            "buckets": {bucket.id: bucket for bucket in store.buckets()},
            "cases": sorted(str(p.relative_to(directory)) for p in directory.glob("corpus/*/*/*")),
            "temporary": [str(p) for p in directory.rglob("*") if "tmp" in p.name],
        }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("whole")
    assert run(directory).ended == "nothing left"
    return found(directory)


def test_each_fault_becomes_one_bucket_with_a_minimized_case(whole: dict[str, Any]) -> None:
    titles = sorted(bucket.title for bucket in whole["buckets"].values())
    assert len(titles) == 3, titles
    assert {name.split("/")[-1] for name in whole["cases"]} >= {"program.yaml", "repro.py"}
    wrong_one = next(b for b in whole["buckets"].values() if b.kind == "wrong_result")
    assert "kernel.handwritten" in wrong_one.trigger
    assert not any(feature.startswith("compile") for feature in wrong_one.trigger)


def test_everything_ends_in_an_end_state(whole: dict[str, Any]) -> None:
    states = set(whole["states"].values())
    assert states <= {State.DONE, State.DUPLICATE, State.FLAKY}
    assert State.FLAKY in states


def test_the_script_is_tried_and_the_count_is_kept(whole: dict[str, Any]) -> None:
    for bucket in whole["buckets"].values():
        assert Tried(runs=3, reproduced=3) in bucket.tried.values()


@pytest.mark.parametrize("size", [1, 5])
def test_the_same_programs_run_whatever_the_number_of_workers(
    tmp_path: Path, whole: dict[str, Any], size: int
) -> None:
    run(tmp_path, pool=FakePool(size))
    with Store(tmp_path) as store:
        assert not store.pending()
    assert found(tmp_path)["executed"] == whole["executed"]
    assert {b.kind for b in found(tmp_path)["buckets"].values()} == {
        b.kind for b in whole["buckets"].values()
    }


def test_what_ends_in_clean_processes_is_no_hang(tmp_path: Path) -> None:
    assert run(tmp_path / "slow", pool=Slow()).ended == "nothing left"
    left = found(tmp_path / "slow")
    assert not left["buckets"] and not left["cases"]
    assert set(left["states"].values()) == {State.FLAKY}
    pool = Slow()
    pool.status = None
    run(tmp_path / "hung", pool=pool)
    assert {bucket.kind for bucket in found(tmp_path / "hung")["buckets"].values()} == {"hang"}


def test_a_hang_whose_script_cannot_be_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise IndexError("a defect of attnfuzz")

    monkeypatch.setattr("attnfuzz.fuzz.campaign.save_case.script_for", broken)
    assert run(tmp_path / "slow", pool=Slow()).snapshot.defects
    kinds = {bucket.kind for bucket in found(tmp_path / "slow")["buckets"].values()}
    assert kinds == {"hang"}


def outcomes(answer: Answer) -> list[Outcome]:
    assert isinstance(answer, list)
    return [one for one in answer if isinstance(one, Outcome)]


class Shifting(FakePool):
    """What a mask breaks is said in other words in every run but the first."""

    def answer(self, task: Task) -> Answer:
        told = super().answer(task)
        if not isinstance(task, RunTask):
            return told
        masked = [p.mask is not None and p.shape.q_len > 0 for p in task.programs]
        pairs = zip(masked, outcomes(told), strict=True)
        return [raised("masks fail at last") if one else outcome for one, outcome in pairs]


def test_a_program_is_a_finding_of_what_it_mostly_fails_with(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    run(tmp_path, pool=Shifting())
    titles = {bucket.title for bucket in found(tmp_path)["buckets"].values()}
    assert len(titles) == len(whole["buckets"])
    assert any("masks fail at last" in title for title in titles)
    assert not any("masks are broken" in title for title in titles)


class Losing(FakePool):
    """Every third worker dies of what it runs."""

    runs = 0

    def answer(self, task: Task) -> Answer:
        self.runs += isinstance(task, RunTask)
        if isinstance(task, RunTask) and self.runs % 3 == 0:
            return WorkerDied(3)
        return super().answer(task)


def test_a_finding_is_not_flaky_because_workers_die(tmp_path: Path, whole: dict[str, Any]) -> None:
    run(tmp_path, pool=Losing())
    # A candidate that was lost is not taken: what is left may be less than minimal.
    titles = {bucket.title for bucket in found(tmp_path)["buckets"].values()}
    assert titles == {bucket.title for bucket in whole["buckets"].values()}
    with Store(tmp_path) as store:
        assert not any(row.failures for row in store.failures(state=State.FLAKY))


class Hasty(FakePool):
    """What does not fail misses the deadlines that candidates have."""

    def answer(self, task: Task) -> Answer:
        told = super().answer(task)
        if not isinstance(task, RunTask) or task.settings.confirm_hang:
            return told
        return [hung() if outcome == PASSED else outcome for outcome in outcomes(told)]


def test_what_is_slow_while_another_is_minimized_is_no_finding(tmp_path: Path) -> None:
    run(tmp_path, pool=Hasty())
    with Store(tmp_path) as store:
        kinds = {row.outcome.failure.kind for row in store.failures() if row.outcome.failure}
    assert FailureKind.COMPILE_ERROR in kinds and FailureKind.HANG not in kinds


class Killed(BaseException):
    """What SIGKILL is to this process: nothing may handle it."""


class MortalStore(Store):
    """A store whose owner dies just before the write number `dies_at`."""

    dies_at = 0
    writes = 0

    def _writing(self) -> Any:
        self.writes += 1
        if self.writes == self.dies_at:
            raise Killed
        return super()._writing()


def killed_at(directory: Path, event: int) -> bool:
    """Runs a campaign until its owner dies at that write; False when it ended before."""
    with MortalStore(directory) as store:
        store.writes, store.dies_at = 0, event
        try:
            campaign(directory, store).run()
        except Killed:
            return True
    return False


def test_killed_at_any_event_and_resumed_it_finds_the_same(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    event = 1
    while True:
        directory = tmp_path / str(event)
        directory.mkdir()
        died = killed_at(directory, event)
        run(directory)
        left = found(directory)
        assert left["executed"] == whole["executed"]
        assert left["by_key"] == whole["by_key"]
        assert set(left["states"].values()) <= {State.DONE, State.DUPLICATE, State.FLAKY}
        assert {b.kind for b in left["buckets"].values()} == {
            b.kind for b in whole["buckets"].values()
        }
        assert len(left["buckets"]) == len(whole["buckets"])
        assert len(left["cases"]) == len(set(left["cases"])) == len(whole["cases"])
        assert left["temporary"] == []
        if not died:
            break
        event += 9
    assert event > 30


def test_killed_again_and_again_it_still_ends_the_same(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    deaths = 0
    while killed_at(tmp_path, 7):
        deaths += 1
        assert deaths < 200
    left = found(tmp_path)
    assert deaths > 3
    assert left["executed"] == whole["executed"]
    assert len(left["buckets"]) == len(whole["buckets"])
    assert len(left["cases"]) == len(whole["cases"])


def test_a_stopped_campaign_leaves_the_rest_to_a_resumed_one(tmp_path: Path) -> None:
    seen: list[Snapshot] = []
    with Store(tmp_path) as store:
        stopping: list[Campaign] = []

        def watch(snapshot: Snapshot) -> None:
            seen.append(snapshot)
            if snapshot.failed and stopping:
                stopping[0].stop()

        stopping.append(campaign(tmp_path, store, clock=Clock(0.6), on_snapshot=watch))
        assert stopping[0].run().ended == "interrupted"
        assert store.pending()
    assert run(tmp_path).ended == "nothing left"
    with Store(tmp_path) as store:
        assert not store.pending()
        assert store.totals().shards == SHARDS


def test_sigterm_ends_a_campaign(tmp_path: Path) -> None:
    class Terminating(FakePool):
        def answer(self, task: Task) -> Answer:
            if len(self.indices) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().answer(task)

    before = signal.getsignal(signal.SIGTERM)
    assert run(tmp_path, pool=Terminating()).ended == "interrupted"
    assert signal.getsignal(signal.SIGTERM) is before


def test_time_ends_a_campaign_and_no_shard_starts_when_findings_wait(tmp_path: Path) -> None:
    pool = FakePool()
    config = replace_config(minutes=1.0)
    result = run(tmp_path, pool=pool, config=config, max_shards=None, clock=Clock(0.2))
    assert result.ended == "budget"
    assert sorted(pool.indices) == list(range(len(pool.indices)))
    with Store(tmp_path) as store:
        assert store.totals().shards == len(pool.indices)
        assert all(row.bucket for row in store.failures(state=State.MINIMIZED))
    assert run(tmp_path, max_shards=len(pool.indices)).ended == "nothing left"
    with Store(tmp_path) as store:
        assert not store.pending()
        kinds = [(bucket.kind, bucket.strong) for bucket in store.buckets()]
        assert len(kinds) == len(set(kinds)) == 3


def replace_config(**values: Any) -> CampaignConfig:
    return CONFIG.model_copy(update=values)


def test_a_shard_that_no_worker_survives_is_recorded_and_left(tmp_path: Path) -> None:
    class Dying(FakePool):
        def answer(self, task: Task) -> Answer:
            if isinstance(task, ShardTask) and task.shard.index == 1:
                return WorkerDied(3)
            return super().answer(task)

    result = run(tmp_path, pool=Dying())
    assert result.ended == "nothing left" and result.snapshot.lost == 1
    assert found(tmp_path)["executed"] == (SHARDS - 1) * PER_SHARD


def test_a_full_disk_ends_the_campaign_in_one_sentence(tmp_path: Path) -> None:
    class Full(FakePool):
        def answer(self, task: Task) -> Answer:
            if isinstance(task, RunTask):
                raise OSError(errno.ENOSPC, "No space left on device", "/full/file")
            return super().answer(task)

    with pytest.raises(CampaignError, match="/full/file: No space left on device; what was saved"):
        run(tmp_path, pool=Full())
    assert run(tmp_path).ended == "nothing left"


def test_a_directory_has_one_campaign_at_a_time(tmp_path: Path) -> None:
    another = pytest.raises(CampaignError, match="another campaign is running")
    with claim(tmp_path), another, claim(tmp_path):
        pytest.fail("claimed twice")
    with claim(tmp_path):
        assert (tmp_path / "campaign.lock").exists()


def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CampaignError, match="file"), claim(tmp_path / "file" / "campaign"):
        pass


def test_snapshots_tell_the_counts_and_the_buckets(tmp_path: Path) -> None:
    seen: list[Snapshot] = []
    result = run(tmp_path, on_snapshot=seen.append, clock=Clock(0.3))
    last = seen[-1]
    assert last == result.snapshot
    assert last.executed == last.passed + last.rejected + last.failed == SHARDS * PER_SHARD
    assert [bucket.state for bucket in last.buckets] == ["done"] * 3
    assert all(bucket.fails == "5/5" for bucket in last.buckets)
    states = {bucket.state for snapshot in seen for bucket in snapshot.buckets}
    assert {"confirming", "minimizing"} <= states
