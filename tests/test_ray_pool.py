"""Real Ray, real sandboxes, a planted fault."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.shard import Shard, ShardReport
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.corpus.bucket import Tried
from attnfuzz.corpus.case import find_cases, read_case
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.fuzz.campaign.config import CampaignConfig, config_from_data
from attnfuzz.fuzz.campaign.controller import Campaign
from attnfuzz.fuzz.campaign.workers import worker_config
from attnfuzz.fuzz.pool.pool import run_all
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.pool.tasks import Answer, Finished, Handle, RunTask, ShardTask, WorkerDied
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program

pytestmark = pytest.mark.slow

FAULT = """\
import torch.nn.functional as F

right = F.scaled_dot_product_attention


def wrong(q, k, v, *args, **kwargs):
    F.scaled_dot_product_attention = right  # a CausalBias looks whether it is given to this one
    try:
        out = right(q, k, v, *args, **kwargs)
    finally:
        F.scaled_dot_product_attention = wrong
    return out * 1.5 if kwargs.get("attn_mask") is not None else out


F.scaled_dot_product_attention = wrong
"""


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with Scratch.create() as opened:
        yield opened
    assert not opened.root.exists()


@pytest.fixture(scope="module")
def run_id() -> Iterator[str]:
    """The run of a pool of two workers; in the end nothing of it is left."""
    with Scratch.create() as opened:
        POOLS.append(RayPool(WorkerConfig(scratch=str(opened.root)), 2))
        yield opened.run_id
        POOLS.pop().close()
    assert not opened.root.exists()
    assert marked(opened.run_id) == []


POOLS: list[RayPool] = []


def marked(run_id: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ATTNFUZZ_RUN") == run_id and process.pid != os.getpid():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def busy_workers(run_id: str) -> list[int]:
    """Actors in the middle of a task: Ray puts the method's name into the process's title."""
    busy = "ray::WorkerProcess.run_programs"
    return [pid for pid in marked(run_id) if title(pid).startswith(busy)]


def title(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:  # it has ended since
        return ""


def test_a_toolchain_without_torch_is_one_sentence(scratch: Scratch) -> None:
    config = WorkerConfig(scratch=str(scratch.root), toolchain="/bin/false")
    with closing(RayPool(config, 1)) as pool, pytest.raises(SandboxError, match="/bin/false"):
        pool.environment()


SEEMS_BROKEN = """\
#!/bin/sh
if [ -e "{flag}" ]; then
    rm "{flag}"
    echo "out of everything" >&2
    exit 1
fi
exec "{python}" "$@"
"""

KILLS_ITS_ZYGOTE = """\
import os, signal

FLAG = "{flag}"


def killed_once(*args, **kwargs):
    if not os.path.exists(FLAG + ".was"):
        open(FLAG + ".was", "w").close()
        open(FLAG, "w").close()
        os.kill(os.getppid(), signal.SIGKILL)
    return right(*args, **kwargs)


import torch.nn.functional as F

right = F.scaled_dot_product_attention
F.scaled_dot_product_attention = killed_once
"""


def test_a_worker_that_served_and_cannot_start_again_is_tried_again(
    scratch: Scratch, tmp_path: Path
) -> None:
    flag, toolchain, preload = tmp_path / "flag", tmp_path / "python", tmp_path / "kills.py"
    toolchain.write_text(SEEMS_BROKEN.format(flag=flag, python=sys.executable))
    toolchain.chmod(0o700)
    preload.write_text(KILLS_ITS_ZYGOTE.format(flag=flag))
    config = WorkerConfig(
        scratch=str(scratch.root), toolchain=str(toolchain), preload=(str(preload),)
    )
    with closing(RayPool(config, 1)) as pool:
        task = RunTask((Program(seed=1),))
        passing = RunTask((Program(seed=2, kernel=Handwritten()),))
        for one in (passing, task, task):
            (done,) = run_all(pool, [one])
            assert isinstance(done.result, list)
    assert (tmp_path / "flag.was").exists() and not flag.exists()


def test_a_campaign_finds_and_minimizes_a_planted_fault(scratch: Scratch, tmp_path: Path) -> None:
    (tmp_path / "fault.py").write_text(FAULT)
    config: CampaignConfig = config_from_data(
        {
            "seed": 12,
            "minutes": 5,
            "shard_size": 6,
            "profiles": {"eager": 1.0},
            "preload": [str(tmp_path / "fault.py")],
            "minimize": {"max_candidates": 30, "seconds": 30},
            "variants": False,
        },
        "test",
    )
    with (
        Store(tmp_path) as store,
        closing(RayPool(worker_config(config, scratch.root), 2)) as pool,
    ):
        campaign = Campaign(config, tmp_path, pool, store, scratch=scratch.root, max_shards=2)
        assert campaign.run().ended == "nothing left"
        # Torch's own that are shipped are met too, and known.
        unknown = [bucket for bucket in store.buckets() if bucket.known_issue is None]
        assert len(unknown) == 1, [bucket.title for bucket in unknown]
        (fault,) = unknown
        assert fault.kind == "wrong_result", fault.title
        assert Tried(runs=3, reproduced=3) in fault.tried.values()
        assert {row.state for row in store.failures()} <= {State.DONE, State.DUPLICATE}
    (folder, *_) = find_cases([tmp_path / "corpus" / fault.folder])
    case = read_case(folder)
    assert case.program.kernel.kind == "sdpa" and case.program.mask is not None
    assert case.program.training is None and case.program.compile is None
    assert [one.name for one in case.preload] == ["fault.py"]
    assert len(case.repro.splitlines()) <= 40


# A process has one Ray at a time: from here on it is that of `run_id`.


def test_results_come_in_order_and_the_environment_is_told(run_id: str) -> None:
    (pool,) = POOLS
    assert "torch" in pool.environment()
    programs = [Program(seed=seed) for seed in range(5)]
    done = run_all(pool, [RunTask((program,)) for program in programs])
    assert [one.task for one in done] == [RunTask((program,)) for program in programs]
    assert len(marked(run_id)) > 2


def test_a_worker_that_dies_is_replaced_and_its_task_done_again(run_id: str) -> None:
    (pool,) = POOLS
    shard = Shard(campaign_seed=1, index=0, size=3, profiles=(("eager", 1.0),))
    while pool.free < 2:  # the second may still be starting
        assert pool.wait(1.0) == []
    handles = [pool.submit(RunTask((Program(),) * 100)), pool.submit(ShardTask(shard))]
    assert pool.free == 0
    with pytest.raises(RuntimeError, match="no slot is free"):
        pool.submit(RunTask((Program(),)))
    done: dict[Handle, Answer] = {}
    while not (busy := busy_workers(run_id)):
        done |= {finished.handle: finished.result for finished in pool.wait(0.05)}
        assert handles[0] not in done
    os.kill(busy[0], signal.SIGKILL)
    while len(done) < 2:
        done |= {finished.handle: finished.result for finished in pool.wait(1.0)}
    outcomes, report = done[handles[0]], done[handles[1]]
    assert isinstance(report, ShardReport) and report.executed == 3
    assert isinstance(outcomes, list) and len(outcomes) == 100
    assert all(isinstance(one, Outcome) and one.status == "passed" for one in outcomes)
    assert pool.free == 2


def test_a_task_whose_workers_always_die_is_given_up(run_id: str) -> None:
    (pool,) = POOLS
    pool.submit(RunTask((Program(),) * 5000))
    done: list[Finished] = []
    while not done:
        for pid in busy_workers(run_id):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        done = pool.wait(0.5)
    assert done[0].result == WorkerDied(3)
    while pool.free < 2:  # those that were killed last start again
        assert pool.wait(1.0) == []
