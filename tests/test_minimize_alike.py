"""`attnfuzz minimize` and a campaign minimize a program to the same one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.shard import Tally
from attnfuzz.corpus.case import find_cases, read_case
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.controller import Campaign
from attnfuzz.fuzz.pool.tasks import Answer, ReproRun, ReproTask, RunTask, ShardTask, Task
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.fuzz.reduce.one_program import confirm, minimize
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Compile, Program, Shape
from tests.support.fake_pool import PASSED, FakePool, wrong

BUSY = Program(
    kernel=Handwritten(),
    mask=Causal(offset=3),
    shape=Shape(batch=3, q_len=33, kv_len=48),
    compile=Compile(),
)
CRASH = Outcome(
    status="failed",
    failure=Failure(
        kind=FailureKind.CRASH,
        phase=Phase.FORWARD,
        layer=Layer.EAGER,
        signal="SIGSEGV",
        raised=Raised(type="Signal SIGSEGV", message="killed by SIGSEGV"),
    ),
)
HANG = Outcome(
    status="failed", failure=Failure(kind=FailureKind.HANG, phase=Phase.FORWARD, layer=Layer.EAGER)
)
NAN = Diff(output="out", what="value", expected="1", actual="nan")
NONFINITE = Outcome(
    status="failed",
    failure=Failure(kind=FailureKind.NONFINITE, phase=Phase.CHECK, layer=Layer.EAGER, diffs=(NAN,)),
)


class OnePool(FakePool):
    """Its only program is `BUSY`."""

    def answer(self, task: Task) -> Answer:
        if isinstance(task, ShardTask):
            tally = Tally(task.shard)
            tally.add(BUSY, self.outcome(BUSY, RunTask((BUSY,))))
            return tally.report(1.0, 0.0)
        if isinstance(task, RunTask):
            return self.outcomes(task)
        assert isinstance(task, ReproTask)
        return [self.repro(task) for _ in range(task.runs)]

    def outcomes(self, task: RunTask) -> list[Outcome]:
        """Of each run, up to the one after which the task ends."""
        found: list[Outcome] = []
        for program in task.programs:
            found.append(self.outcome(program, task))
            if task.settings.until == ("failed" if found[-1].status == "failed" else "not failed"):
                break
        return found

    def outcome(self, program: Program, task: RunTask) -> Outcome:
        raise NotImplementedError


class Crashing(OnePool):
    """Masks crash."""

    def outcome(self, program: Program, task: RunTask) -> Outcome:
        return CRASH if program.mask is not None else PASSED

    def repro(self, task: ReproTask) -> ReproRun:
        return ReproRun(-11, "")


class Wrong(OnePool):
    """Many keys give wrong results."""

    def outcome(self, program: Program, task: RunTask) -> Outcome:
        return wrong("out") if program.shape.kv_len > 20 else PASSED


class Hanging(OnePool):
    """Many queries hang with a mask; without one they are slow, and miss short deadlines only."""

    rechecks = 0

    def outcome(self, program: Program, task: RunTask) -> Outcome:
        if program.shape.q_len <= 16:
            return PASSED
        self.rechecks += program.mask is None and task.settings.deadlines is None
        slow = program.mask is None and task.settings.deadlines is None
        return PASSED if slow else HANG

    def repro(self, task: ReproTask) -> ReproRun:
        return ReproRun(None, "")


class Seldom(OnePool):
    """Many keys give wrong results in two runs of three."""

    def __init__(self, size: int = 2) -> None:
        super().__init__(size)
        self._runs: Counter[str] = Counter()

    def outcome(self, program: Program, task: RunTask) -> Outcome:
        name = program_id(program)
        self._runs[name] += 1
        return wrong("out") if program.shape.kv_len > 20 and self._runs[name] % 3 else PASSED


class Dirty(OnePool):
    """A mask gives NaN always, and many keys now and then: what lay in memory decides."""

    def __init__(self, size: int = 2) -> None:
        super().__init__(size)
        self._runs: Counter[str] = Counter()

    def outcome(self, program: Program, task: RunTask) -> Outcome:
        name = program_id(program)
        self._runs[name] += 1
        by_chance = program.shape.kv_len > 20 and self._runs[name] % 2 == 0
        return NONFINITE if program.mask is not None or by_chance else PASSED


def in_campaign(folder: Path, pool: FakePool) -> list[Program]:
    """What a campaign makes of the pool's program."""
    config = CampaignConfig(seed=7, shard_size=1, shipped=False, variants=False)
    ticks = iter(range(10**6))
    with Store(folder) as store:
        campaign = Campaign(
            config, folder, pool, store, scratch=folder, max_shards=1,
            clock=lambda: next(ticks) / 100,
        )  # fmt: skip
        assert campaign.run().ended == "nothing left"
        original = program_id(BUSY)
        row = store.failure(original)
        assert row is not None and row.best is not None
    cases = [read_case(case) for case in find_cases([folder / "corpus"])]
    return [row.best, *(case.program for case in cases if case.original == original)]


def by_itself(pool: OnePool) -> Finding:
    """What the command makes of it."""
    (first,) = pool.outcomes(RunTask((BUSY,)))
    finding = confirm(pool, BUSY, first, "cpu", 5)
    assert minimize(pool, finding, max_candidates=600).search.minimal
    return finding


@pytest.mark.parametrize("kind", [Crashing, Wrong, Hanging, Seldom, Dirty])
@pytest.mark.parametrize("size", [1, 2])
def test_a_campaign_and_the_command_give_the_same_program(
    tmp_path: Path, kind: type[OnePool], size: int
) -> None:
    finding = by_itself(kind(size))
    assert all(one == finding.best for one in in_campaign(tmp_path, kind(size)))
    assert kind is Hanging or finding.simplified


def test_a_hang_that_was_minimized_to_what_is_slow_stays_as_it_was() -> None:
    pool = Hanging()
    finding = by_itself(pool)
    assert pool.rechecks and finding.best == BUSY


def test_what_shows_by_chance_is_not_minimized_to_what_shows_less() -> None:
    assert by_itself(Dirty()).best.mask is not None


def test_what_mostly_fails_otherwise_is_minimized_as_that() -> None:
    finding = confirm(Wrong(), BUSY, CRASH, "cpu", 5)
    assert finding.failure.kind is FailureKind.WRONG_RESULT and finding.failed == finding.runs == 5


def test_programs_that_a_known_bucket_explains_are_passed_by(tmp_path: Path) -> None:
    in_campaign(tmp_path, Wrong())
    with Store(tmp_path, create=False) as store:
        (bucket,) = store.buckets()
    without_mask = replace(bucket, trigger=frozenset(), sorts=frozenset({"shape.length"}))
    program = replace(BUSY, mask=None)
    finding = confirm(Wrong(), program, wrong("out"), "cpu", 5)
    minimize(Wrong(), finding, max_candidates=600, buckets=[without_mask])
    assert finding.simplified  # it explains the program itself, so nothing else would be left
