"""Which finding a campaign looks into first."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.shard import Tally
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign import behind, investigation
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, ShardTask, Task
from attnfuzz.generators.kernels.specs import Handwritten, Sdpa
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Cost, Outcome
from attnfuzz.generators.model.program import Compile, Program, Shape
from tests.support.fake_campaign import CONFIG, run
from tests.support.fake_pool import PASSED, FakePool, judged, raised, wrong


class SeldomPool(FakePool):
    """The first fault, `empty`, shows in one fresh run of five; notes what is minimized when."""

    def __init__(self) -> None:
        super().__init__(size=1)
        self.runs: Counter[str] = Counter()
        self.order: list[str] = []

    def answer(self, task: Task) -> Answer:
        if isinstance(task, ShardTask):
            tally = Tally(task.shard)
            costly = Cost(wall_s=3.0)
            for program in (replace(EMPTY, seed=1), replace(MASKED, seed=2)):
                tally.add(program, replace(judged(program, fresh=False), cost=costly))
            return tally.report(1.0, 0.0)
        if not isinstance(task, RunTask):
            return super().answer(task)
        program = task.programs[0]
        word = "retrying" if len(task.programs) > 1 else "empty"
        self.order.append("masked" if program.mask is not None else word)
        if program.mask is not None:
            return [judged(program, fresh=True) for program in task.programs]
        name = program_id(program)
        self.runs[name] += len(task.programs)
        shows = program.shape.q_len == 0 and self.runs[name] % 5 == 0
        return [raised("no queries") if shows else PASSED for _ in task.programs]


EMPTY = Program(shape=Shape(q_len=0, kv_len=48, batch=3))
MASKED = Program(mask=Causal(offset=3), shape=Shape(kv_len=48, batch=3), compile=Compile())


def test_what_shows_seldom_does_not_hold_up_what_always_shows(tmp_path: Path) -> None:
    pool = SeldomPool()
    run(tmp_path, pool, shards=1, shipped=False, variants=False)
    assert pool.order[:5] == ["empty"] * 5
    last_masked = max(at for at, name in enumerate(pool.order) if name == "masked")
    assert last_masked < pool.order.index("retrying")


WRONG = Program(kernel=Handwritten(), shape=Shape(kv_len=48, batch=3))


class OneShardPool(FakePool):
    """A shard of `programs`, one worker; `order` names what is run after it."""

    programs: tuple[Program, ...]

    def __init__(self) -> None:
        super().__init__(size=1)
        self.order: list[str] = []

    def answer(self, task: Task) -> Answer:
        if isinstance(task, ShardTask):
            tally = Tally(task.shard)
            for program in self.programs:
                tally.add(program, self.judged(program))
            return tally.report(1.0, 0.0)
        if not isinstance(task, RunTask):
            return super().answer(task)
        outcomes = [self.judged(program) for program in task.programs]
        for program, outcome in zip(task.programs, outcomes, strict=True):
            self.order += self.names(program, outcome)
        return outcomes

    def judged(self, program: Program) -> Outcome:
        """What a program does."""
        raise NotImplementedError

    def names(self, program: Program, outcome: Outcome) -> list[str]:
        """What is noted of a run."""
        raise NotImplementedError


class ThreePool(OneShardPool):
    """A compile error and wrong results of two causes."""

    programs = (MASKED, WRONG, replace(WRONG, kernel=Sdpa(), shape=Shape(q_len=17)))

    def names(self, program: Program, outcome: Outcome) -> list[str]:
        failure = outcome.failure
        if failure is None:
            return []
        return [failure.diffs[0].output if failure.diffs else failure.kind.value]

    def judged(self, program: Program) -> Outcome:
        if program.mask is None and program.shape.q_len == 17:
            return wrong("dq")
        return judged(program, fresh=True)


def test_what_costs_alike_is_minimized_by_its_kind_and_the_worst_first(tmp_path: Path) -> None:
    """All are confirmed at first. Then the worst is minimized, and what is of a kind that has no
    bucket before a second one of its kind."""
    pool = ThreePool()
    run(tmp_path, pool, shards=1, shipped=False, variants=False)
    last = {name: at for at, name in enumerate(pool.order)}
    assert sorted(last, key=last.__getitem__) == ["out", "compile_error", "dq"]
    assert set(pool.order[: last["out"]]) == set(last)


def test_variants_come_after_all_that_is_to_be_minimized(tmp_path: Path) -> None:
    without, pool = ThreePool(), ThreePool()
    run(tmp_path / "without", without, shards=1, shipped=False, variants=False)
    run(tmp_path, pool, shards=1, shipped=False, variants=True)
    assert len(pool.order) > len(without.order)
    assert pool.order[: len(without.order)] == without.order


NARROW = replace(WRONG, shape=Shape(kv_len=16, head_dim=40))


class SharedKeyPool(OneShardPool):
    """Wrong results of two causes that share a key."""

    programs = (WRONG, NARROW)

    def names(self, program: Program, outcome: Outcome) -> list[str]:
        return [{WRONG: "wide", NARROW: "narrow"}.get(program, "simpler")]

    def judged(self, program: Program) -> Outcome:
        if program.shape.head_dim == 40 and program.kernel == WRONG.kernel:
            return wrong("out")
        return judged(program, fresh=True)


@pytest.mark.parametrize("late_s", [0.0, 1e6], ids=["late", "in time"])
def test_what_waits_too_long_behind_one_of_its_key_is_confirmed_and_waits_on(
    late_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind, "LATE_S", late_s)
    pool = SharedKeyPool()
    buckets = run(tmp_path, pool, shards=1, shipped=False)
    assert len(buckets) == 2
    assert len({bucket.strong for bucket in buckets}) == 1
    runs, simpler = CONFIG.confirm_runs, pool.order.index("simpler")
    assert pool.order[:runs] == ["wide"] * runs
    assert pool.order.count("narrow") == runs, "it is confirmed once"
    assert ("narrow" in pool.order[:simpler]) == (late_s == 0.0)


ON_RECORD = """\
- id: example-1
  link: https://example.org/1
  note: masks are broken
  kinds: [compile_error]
  message: masks are broken
"""


class RecordedPool(OneShardPool):
    """Each shard has a failure that is on public record."""

    def answer(self, task: Task) -> Answer:
        if not isinstance(task, ShardTask):
            return super().answer(task)
        self.order.append("shard")
        tally, program = Tally(task.shard), replace(MASKED, seed=task.shard.index)
        tally.add(program, self.judged(program))
        return tally.report(1.0, 0.0)

    def judged(self, program: Program) -> Outcome:
        return judged(program, fresh=True)

    def names(self, program: Program, outcome: Outcome) -> list[str]:
        return ["known"]


@pytest.mark.parametrize("on_record", [True, False])
def test_what_is_on_public_record_waits_while_there_are_new_programs(
    on_record: bool, tmp_path: Path
) -> None:
    issues = tmp_path / "issues.yaml"
    issues.write_text(ON_RECORD if on_record else "[]\n")
    pool = RecordedPool()
    minimize = CONFIG.minimize.model_copy(update={"pool_share": 0.9, "known_share": 0.05})
    run(
        tmp_path / "campaign", pool, shards=20, shipped=False,
        minimize=minimize, known_issues=issues,
    )  # fmt: skip
    last = len(pool.order) - pool.order[::-1].index("shard")
    assert pool.order.count("known") > 10, "nothing is lost"
    assert (pool.order[:last].count("known") < 5) == on_record


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("late_s", [0.05, 1e6], ids=["late", "in time"])
def test_what_waits_too_long_behind_one_on_public_record_is_run_once_and_waits_on(
    late_s: float, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have one key, which has a stack: the first one's bucket answers for the others."""
    monkeypatch.setattr(behind, "LATE_S", late_s)
    monkeypatch.setattr(investigation, "OVERDUE_S", late_s)
    issues, directory, pool = tmp_path / "issues.yaml", tmp_path / "campaign", SeedsPool()
    pool.size = workers
    issues.write_text(ON_RECORD)
    minimize = CONFIG.minimize.model_copy(update={"pool_share": 0.5, "known_share": 0.01})
    [bucket] = run(
        directory, pool, shards=20, shipped=False, minimize=minimize, known_issues=issues
    )
    with Store(directory) as store:
        rows = store.failures(bucket=bucket.id)
    assert len(rows) == 20, "nothing is lost"
    last = len(pool.order) - pool.order[::-1].index("shard")
    runs = Counter(pool.order[:last])
    # What is minimized has the seed 0 too.
    behind_it = [runs[str(row.program.seed)] for row in rows if not row.runs and row.program.seed]
    assert len(behind_it) >= 18
    assert max(behind_it) <= 1
    assert (sum(map(bool, behind_it)) > 12) == (late_s < 1)


class SeedsPool(RecordedPool):
    """Notes the seeds of programs that are run."""

    def names(self, program: Program, outcome: Outcome) -> list[str]:
        return [str(program.seed)]
