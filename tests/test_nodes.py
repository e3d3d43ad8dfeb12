"""Programs whose ranks are on several nodes: a real Ray of several raylets on one machine, real
sandboxes on each, and what becomes of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest import mock

import psutil
import pytest
import ray
from ray.util.placement_group import placement_group_table

from attnfuzz.actors.node import About, digest
from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool import ray_pool
from attnfuzz.fuzz.pool.cluster import Cluster
from attnfuzz.fuzz.pool.groups import WorkerGroup
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome, Phase
from attnfuzz.generators.model.program import Mesh, Program, Shape, Training
from benchmarks.local_cluster import LocalCluster, local_cluster
from benchmarks.simulated import below
from tests.support.sources import source
from tests.support.text_worker import TextWorker, programs_below

pytestmark = pytest.mark.slow

MEET = """
import os, time
import torch.distributed as dist
if not dist.is_initialized():
    dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
assert os.environ["LOCAL_RANK"] == str(rank % 2) and os.environ["WORLD_SIZE"] == "4"
"""

ROOT = Path(__file__).resolve().parent.parent

SOON_DEAD = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}

PROGRAM = Program(
    kernel=Handwritten(),
    shape=Shape(q_heads=2, kv_heads=2, q_len=7, kv_len=9),
    mesh=Mesh(world_size=4, ranks="processes", q="length", k="length", v="length"),
    training=Training(),
)


HERE = os.uname().nodename
WHERE = f"ranks 0 and 1 on node 0 ({HERE}); ranks 2 and 3 on node 1 ({HERE})"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes with a CPU each."""
    with local_cluster(_system_config=SOON_DEAD) as opened:
        opened.add(cpus=1)
        opened.add(cpus=1)
        yield opened


@pytest.fixture(scope="module")
def pool(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayPool]:
    """One worker on two nodes."""
    config = WorkerConfig(scratch=str(tmp_path_factory.mktemp("scratch")))
    group = WorkerGroup(targets=("cpu",), count=1, nodes=2)
    there = Cluster(address=cluster.address, code=digest())
    with (
        mock.patch.object(ray_pool, "Worker", TextWorker),
        closing(RayPool(config, (group,), cluster=there)) as opened,
    ):
        until_it_takes(opened)
        yield opened


def until_it_takes(pool: RayPool) -> About:
    while not pool.takes("cpu"):
        pool.wait(1.0)
    about = pool._slots[0].about
    assert about is not None and len({about.node, *(one.node for one in about.others)}) == 2
    return about


def answer(pool: RayPool, *programs: Program) -> list[Outcome]:
    pool.submit(RunTask(programs, RunSettings(confirm_hang=False)))
    while not (done := pool.wait(1.0)):
        pass
    result = done[0].result
    assert isinstance(result, list), result
    assert all(isinstance(one, Outcome) for one in result)
    return [one for one in result if isinstance(one, Outcome)]


def failure_of(pool: RayPool, body: str, **deadlines: float) -> Failure:
    """How a program of four ranks, two a node, fails; nothing of it is left."""
    job = Job(ranks=4, deadlines=Deadlines(**deadlines))
    text = source(MEET + body)
    outcome: Outcome = ray.get(pool._slots[0].actor.run_text.remote(text, job))
    about = pool._slots[0].about
    assert about is not None
    assert programs_below([about.pid, *(one.pid for one in about.others)]) == []
    assert outcome.failure is not None, outcome
    assert outcome.failure.raised is not None or outcome.failure.diffs
    assert outcome.failure.evidence["nodes"] == WHERE
    return outcome.failure


def test_ranks_on_two_nodes_give_what_they_give_on_one(pool: RayPool) -> None:
    [outcome] = answer(pool, PROGRAM)
    here: Outcome = ray.get(pool._slots[0].actor.run_here.remote(PROGRAM))
    assert outcome.status == "passed", outcome
    assert replace(outcome, cost=here.cost) == here
    hardware = pool._slots[0].hardware
    assert hardware == "2 nodes"
    assert pool.environment("cpu", hardware)["hardware"] == "2 nodes"


def test_a_rank_that_crashes_on_the_other_node_is_named(pool: RayPool) -> None:
    body = "import ctypes\nif rank == 3: ctypes.string_at(0)\ndist.barrier()"
    failure = failure_of(pool, body)
    assert failure.raised is not None
    assert (failure.kind, failure.signal) == (FailureKind.CRASH, "SIGSEGV")
    assert failure.raised.message == "rank 3 was killed by SIGSEGV"
    assert "string_at" in failure.evidence["python_stacks"]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_raises_is_told_before_those_it_leaves_alone(pool: RayPool, rank: int) -> None:
    body = f"if rank == {rank}: raise LookupError('lost its way')\ndist.barrier()"
    failure = failure_of(pool, body)
    assert failure.raised is not None
    assert (failure.kind, failure.phase) == (FailureKind.RUNTIME_ERROR, Phase.EAGER)
    assert failure.raised.message == "lost its way"
    assert failure.evidence["rank"].startswith(f"rank {rank} of 4")


def test_ranks_that_nobody_tells_of_a_dead_one_are_stopped(pool: RayPool) -> None:
    waits = "import threading\nthreading.Event().wait()"
    failure = failure_of(pool, f"if rank == 3: os._exit(0)\n{waits}")
    assert failure.raised is not None
    assert failure.raised.message == "rank 3 exited with code 0, without a result"


def test_a_hang_shows_the_ranks_of_all_nodes(pool: RayPool) -> None:
    body = """
import threading
one, two = (lambda: dist.all_reduce(q.clone())), (lambda: dist.broadcast(q.clone(), 0))
for step in (two, one) if rank == 3 else (one, two): step()
"""
    failure = failure_of(pool, body, idle=3.0)
    assert failure.raised is not None
    assert failure.kind is FailureKind.HANG
    assert failure.raised.message == "all asleep in phase eager for 3 s"
    *lines, parted, away = failure.evidence["ranks"].splitlines()
    assert "waits in broadcast of 16 float32, the 1st of group 0" in lines[3]
    assert "ranks 0, 1 and 2: all_reduce of 16 float32 (program.py:" in parted
    assert away == "went another way: rank 3"
    assert f"processes on node 1 ({HERE})" in failure.evidence


def test_a_rank_of_the_other_node_that_never_ends_misses_the_deadline(pool: RayPool) -> None:
    # All ranks have met before one ends, on a busy machine too; a second call meets no more.
    body = """
import threading
if not hasattr(dist, "have_met"):
    dist.have_met = dist.barrier()
if rank == 2: threading.Event().wait()
"""
    failure = failure_of(pool, body, check=8.0)
    assert (failure.kind, failure.phase) == (FailureKind.HANG, Phase.CHECK), failure
    assert "rank 2" in failure.evidence["ranks"]


def test_ranks_of_two_nodes_that_do_not_do_the_same_together_fail(pool: RayPool) -> None:
    body = "if rank == 3:\n    import atexit\n    atexit.register(dist.broadcast, q, 3)"
    failure = failure_of(pool, "dist.barrier()\n" + body)
    assert (failure.kind, failure.oracle) == (FailureKind.METADATA_MISMATCH, "collectives")
    assert failure.evidence["rank"] == "rank 3"


def test_what_ran_on_a_node_that_died_runs_elsewhere_and_nothing_is_left(
    pool: RayPool, cluster: LocalCluster
) -> None:
    about = until_it_takes(pool)
    [host] = about.others
    began = [psutil.Process(pid) for pid in (about.pid, host.pid)]
    below = [one for process in began for one in process.children(recursive=True)]
    handle = pool.submit(RunTask((PROGRAM,) * 4))
    while not programs_below([about.pid, host.pid]):
        assert pool.wait(0.1) == []
    lost = next(node for node in cluster.nodes if node.node_id == host.node)
    cluster.remove(lost)
    cluster.add(cpus=1)
    while not (done := pool.wait(1.0)):
        pass
    assert done[0].handle == handle and isinstance(done[0].result, list)
    assert {one.status for one in done[0].result if isinstance(one, Outcome)} == {"passed"}
    assert not any(one.is_running() for one in [*began, *below])
    now = until_it_takes(pool)
    assert host.node not in {one.node for one in (now, *now.others)}


CONTROLLER = """
import sys
from attnfuzz.actors.node import digest
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool import ray_pool
from attnfuzz.fuzz.pool.cluster import Cluster
from attnfuzz.fuzz.pool.groups import WorkerGroup
from benchmarks.simulated import SimulatedWorker

ray_pool.Worker = SimulatedWorker
group = WorkerGroup(targets=("cpu",), count=1, nodes=2)
there = Cluster(address=sys.argv[1], code=digest())
pool = ray_pool.RayPool(WorkerConfig(scratch=""), (group,), cluster=there)
while not pool.takes("cpu"):
    pool.wait(1.0)
print("serves", flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_of_a_controller_that_is_killed(
    pool: RayPool, cluster: LocalCluster
) -> None:
    pool.close()
    command = [sys.executable, "-c", CONTROLLER, cluster.address]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "serves\n"
        assert len(below(cluster.address)) == 2
        controller.kill()
    deadline = time.monotonic() + 60
    ray.init(address=cluster.address, log_to_driver=False)
    while (there := left(cluster)) and time.monotonic() < deadline:
        time.sleep(0.2)
    ray.shutdown()
    assert there == []


def left(cluster: LocalCluster) -> list[str]:
    """The placement groups that hold something, and the processes of workers."""
    groups = [one["state"] for one in placement_group_table().values()]
    processes = [str(process) for process in below(cluster.address)]
    return [state for state in groups if state != "REMOVED"] + processes
