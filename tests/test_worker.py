"""Workers: what a shard's report tells whole, what it counts, and that a worker survives it all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox import verdict
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.shard import KEPT_PER_KEY, Shard, ShardReport, Tally
from attnfuzz.actors.targets import target
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.outcome import (
    Cost,
    Diff,
    Failure,
    FailureKind,
    Frame,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Compile, Program, Shape

ROOT = Path(__file__).resolve().parent.parent
SHARD = Shard(campaign_seed=1, index=4, size=8)


def raising(kind: str = "RuntimeError", phase: Phase = Phase.EAGER) -> Outcome:
    frame = Frame(file="torch/nn/attention/flex_attention.py", function="flex_attention", line=9)
    return Outcome(
        status="failed",
        failure=Failure(
            kind=FailureKind.RUNTIME_ERROR,
            phase=phase,
            oracle="refusal",
            raised=Raised(type=kind, message="it broke", frames=(frame,)),
        ),
        cost=Cost(cpu_s=0.5),
    )


def wrong() -> Outcome:
    diff = Diff(output="out", what="value", expected="1", actual="2", error=1.0, budget=0.1)
    failure = Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, diffs=(diff,))
    return Outcome(status="failed", failure=failure)


def report(shard: Shard, outcomes: list[Outcome]) -> ShardReport:
    tally = Tally(shard)
    for seed, outcome in enumerate(outcomes):
        tally.add(Program(seed=seed), outcome)
    return tally.report(wall_s=2.0, harness_cpu_s=0.25)


def key(outcome: Outcome) -> str:
    assert outcome.failure is not None
    return signature(outcome.failure, Program()).strong


def test_everything_is_counted() -> None:
    told = report(
        SHARD,
        [
            Outcome(status="passed", features=("graphs",)),
            Outcome(status="passed", features=("graphs", "fused")),
            Outcome(status="rejected", rejection="no backward on CPU"),
            raising(),
        ],
    )
    assert (told.index, told.executed) == (4, 4)
    assert told.counts == {"failed": 1, "passed": 2, "rejected": 1}
    assert told.rejections == {"no backward on CPU": 1}
    assert told.features == {"fused": 1, "graphs": 2}
    assert (told.cpu_s, told.wall_s, told.harness_cpu_s) == (0.5, 2.0, 0.25)


def test_new_failures_are_told_whole_but_only_so_many_of_a_key() -> None:
    told = report(SHARD, [raising()] * 10 + [raising("TypeError")])
    assert told.by_key == {key(raising()): 10, key(raising("TypeError")): 1}
    failures = [outcome.failure for _, outcome in told.failures if outcome.failure]
    kinds = [failure.raised.type for failure in failures if failure.raised]
    assert kinds == ["RuntimeError"] * KEPT_PER_KEY + ["TypeError"]
    assert [program.seed for program, _ in told.failures] == [0, 1, 2, 10]


def test_known_failures_are_only_counted() -> None:
    shard = Shard(campaign_seed=1, index=0, size=8, known_keys=frozenset({key(raising())}))
    told = report(shard, [raising(), raising("TypeError")])
    assert told.by_key[key(raising())] == 1
    assert len(told.failures) == 1


def test_a_known_key_that_several_causes_share_is_told_all_the_same() -> None:
    shard = Shard(campaign_seed=1, index=0, size=8, known_keys=frozenset({key(wrong())}))
    assert len(report(shard, [wrong()]).failures) == 1


def test_our_own_defects_are_told_apart() -> None:
    unrendered = verdict.of_unrendered("Traceback …\nKeyError: 'mask'")
    told = report(SHARD, [raising(phase=Phase.REFERENCE), unrendered])
    assert told.counts == {"defect": 2}
    assert told.failures == [] and told.by_key == {}
    text = told.defects[1][1]
    assert text.startswith("seed: ") and text.endswith("KeyError: 'mask'")


def test_a_lost_shard_says_why() -> None:
    shard = Shard(campaign_seed=1, index=7, size=8, target="cuda", parents=(Program(),))
    lost = ShardReport.of_lost(shard, "the worker died")
    assert (lost.index, lost.executed, lost.defects) == (7, 0, (("", "the worker died"),))
    assert (lost.target, lost.parents) == ("cuda", shard.parents)  # to draw it again


def test_a_target_that_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    told = "target tpu: programs run on cpu, cuda, xpu, npu, virtual-sm80,"
    with pytest.raises(SandboxError, match=told):
        Executor(WorkerConfig(scratch=str(tmp_path), targets=("tpu",)))


def test_importing_a_worker_imports_neither_torch_nor_ray() -> None:
    check = (
        "import sys, attnfuzz.actors.worker; sys.exit(bool({'torch', 'ray'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0


# --- with a sandbox


@pytest.mark.slow
def test_programs_are_run_in_order(executor: Executor) -> None:
    programs = [Program(), Program(shape=Shape(q_len=1), compile=Compile(backend="eager"))]
    first, second = executor.run_programs(programs)
    assert first.status == second.status == "passed"
    assert "compile" in second.cost.phases and "compile" not in first.cost.phases


@pytest.mark.slow
def test_deadlines_can_be_replaced(executor: Executor) -> None:
    settings = RunSettings(deadlines=Deadlines(total=0.0), confirm_hang=False)
    (outcome,) = executor.run_programs([Program()], settings)
    assert outcome.failure is not None and outcome.failure.kind is FailureKind.HANG


@pytest.mark.slow
def test_a_shard_is_the_same_each_time(executor: Executor) -> None:
    shard = Shard(campaign_seed=3, index=1, size=6)
    first, second = executor.run_shard(shard), executor.run_shard(shard)
    assert first.executed == second.executed == 6
    assert (first.counts, first.by_key) == (second.counts, second.by_key)
    assert first.defects == second.defects == ()
    assert 0 < first.harness_cpu_s < first.cpu_s


def test_the_worker_never_imports_torch() -> None:
    drawn = "shard_programs(3, 1, 6, {'mixed': 1.0})"
    check = (
        "import sys, attnfuzz.actors.worker; from attnfuzz.actors.sandbox.job import Job;"
        "from attnfuzz.generators.render.module import source;"
        "from attnfuzz.generators.strategies.shards import shard_programs;"
        f"[(source(p), Job.of(p)) for p in {drawn}]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_rendering_that_raises_is_a_defect_and_the_shard_goes_on(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(program: Program, device: str, *, all_ranks: bool) -> str:
        raise KeyError("no such mask")

    monkeypatch.setattr(target, "source", broken)
    told = executor.run_shard(Shard(campaign_seed=3, index=2, size=2))
    assert told.counts == {"defect": 2}
    assert "KeyError: 'no such mask'" in told.defects[0][1]


@pytest.mark.slow
def test_an_actor_runs_shards_and_leaves_nothing_when_it_is_killed() -> None:
    import ray

    from attnfuzz.actors.remote import Worker
    from attnfuzz.actors.sandbox import procs

    with Scratch.create() as scratch:
        ray.init(
            address="local",
            num_cpus=1,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 << 20,
            _temp_dir=str(scratch.root / "ray"),
            runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
        )
        try:
            actor = Worker.remote(WorkerConfig(scratch=str(scratch.root)))
            told = ray.get(actor.run_shard.remote(Shard(campaign_seed=3, index=1, size=2)))
            assert told.executed == 2
            pid = ray.get(actor.about.remote()).pid
            assert pid != os.getpid()
            assert procs.descendants(pid) != []
        finally:
            ray.shutdown()
        run_id, root = scratch.run_id, scratch.root
    assert procs.marked("ATTNFUZZ_RUN", run_id) == []
    assert not root.exists()


def test_runs_end_with_the_first_that_tells_enough(executor: Executor) -> None:
    programs = [Program()] * 3
    assert len(executor.run_programs(programs, RunSettings(until="not failed"))) == 1
    assert len(executor.run_programs(programs, RunSettings(until="failed"))) == 3
