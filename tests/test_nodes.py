"""Programs whose ranks are on several nodes: a real Ray of several raylets on one machine, real
sandboxes on each, and what becomes of all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.util.placement_group import placement_group_table

from attnfuzz.actors.node import digest
from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.fuzz.pool.cluster import Cluster
from attnfuzz.fuzz.pool.groups import WorkerGroup
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.outcome import FailureKind, Outcome, Phase
from attnfuzz.generators.model.program import Compile, Mesh, Program, Shape, Training
from benchmarks.local_cluster import LocalCluster, local_cluster
from tests.support.sources import source

pytestmark = pytest.mark.slow

MEET = """
import os, time
import torch.distributed as dist
if not dist.is_initialized():
    dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
assert os.environ["LOCAL_RANK"] == str(rank % 2) and os.environ["WORLD_SIZE"] == "4"
"""

PROGRAM = Program(
    kernel=Handwritten(),
    shape=Shape(q_heads=2, kv_heads=2, q_len=7, kv_len=9),
    mesh=Mesh(world_size=4, ranks="processes", q="length", k="length", v="length"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(_system_config={"health_check_period_ms": 1000}) as opened:
        opened.add(cpus=1)
        opened.add(cpus=1)
        yield opened


@pytest.fixture(scope="module")
def pool(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayPool]:
    """One worker on two nodes."""
    config = WorkerConfig(scratch=str(tmp_path_factory.mktemp("scratch")))
    group = WorkerGroup(targets=("cpu",), count=1, nodes=2)
    there = Cluster(address=cluster.address, code=digest())
    with closing(RayPool(config, (group,), cluster=there)) as opened:
        while not opened.takes("cpu"):
            opened.wait(1.0)
        yield opened


def run(pool: RayPool, *programs: Program) -> list[Outcome]:
    pool.submit(RunTask(programs, RunSettings(confirm_hang=False)))
    while not (done := pool.wait(1.0)):
        pass
    result = done[0].result
    assert isinstance(result, list), result
    return result


def test_ranks_on_two_nodes(pool: RayPool) -> None:
    began = time.monotonic()
    print(run(pool, PROGRAM), time.monotonic() - began)
    print(pool._slots[0].about, pool._slots[0].hardware, pool.environment("cpu", pool._slots[0].hardware))
