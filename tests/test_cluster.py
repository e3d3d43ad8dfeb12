"""Several real raylets on one machine, and workers that only pretend to run programs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from typer.testing import CliRunner

from attnfuzz.actors.node import digest
from attnfuzz.actors.sandbox import reaper
from attnfuzz.actors.shard import Shard, ShardReport, Tally
from attnfuzz.actors.targets.registry import TARGETS, target_for
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.corpus.case import find_cases, read_case
from attnfuzz.corpus.store.machine_deaths import machine_deaths
from attnfuzz.corpus.store.store import DATABASE, State, Store, StoreError
from attnfuzz.fuzz.campaign.config import config_from_data
from attnfuzz.fuzz.campaign.controller import Campaign
from attnfuzz.fuzz.campaign.findings_queue import FindingsQueue
from attnfuzz.fuzz.cli.app import app
from attnfuzz.fuzz.pool import ray_pool
from attnfuzz.fuzz.pool.cluster import Cluster
from attnfuzz.fuzz.pool.deaths import Deaths
from attnfuzz.fuzz.pool.groups import WorkerGroup
from attnfuzz.fuzz.pool.ray_pool import RayPool
from attnfuzz.fuzz.pool.tasks import (
    Finished,
    Handle,
    NoWorker,
    RunTask,
    ShardTask,
    Task,
    WorkerDied,
)
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs
from benchmarks.local_cluster import LocalCluster, local_cluster
from benchmarks.simulated import SimulatedWorker, below, judged
from tests.support.long_worker import LongWorker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
SHARDS = 12
CONFIG: dict[str, Any] = {
    "seed": 5,
    "minutes": 20,
    "shard_size": 4,
    "profiles": {"integrated": 1},
    "targets": {"cpu": 2, "cuda": 1, "npu": 1},
    "workers": {"cpu": "auto", "cuda": "auto", "npu": {"count": 1}},
    "shipped": False,
    "steering": False,
    "variants": False,
    "confirm_runs": 1,
    "repro_runs": 1,
    "minimize": {"max_candidates": 5},
}


SOON_DEAD = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
"""Ray's settings by which a killed node is taken for dead after 3 s; by default it takes 15."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A node with an H100, as it says, one with an NPU, and one with neither."""
    with local_cluster(_system_config=SOON_DEAD) as opened:
        opened.add(cpus=1, gpus=1, **{"accelerator_type:H100": 1})
        opened.add(cpus=1, NPU=1)
        opened.add(cpus=1)
        yield opened
    assert below(opened.address) == []


def start(config: Path, directory: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.simulated_launch", str(config), "--resume"]
    environment = {k: v for k, v in os.environ.items() if k != reaper.MARKER}
    return subprocess.Popen(
        [*command, "--dir", str(directory), *options],
        cwd=ROOT, text=True, env=environment | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def recorded(directory: Path) -> int:
    """How many of the first shards are recorded."""
    try:
        with Store(directory, create=False) as store:
            return sum(index < SHARDS for index in store.shard_indices())
    except StoreError:  # it is not there yet
        return 0


Counts = dict[int, tuple[dict[str, int], dict[str, int]]]
"""By shard: programs by status, and failures by strong key."""


def found(directory: Path) -> Counts:
    """What the first shards gave, which must not depend on where they ran."""
    with closing(sqlite3.connect(directory / DATABASE)) as connection:
        rows = connection.execute('SELECT "index", report FROM shards').fetchall()
    reports = {index: json.loads(report) for index, report in rows if index < SHARDS}
    return {index: (one["counts"], one["by_key"]) for index, one in sorted(reports.items())}


def test_targets_have_their_nodes_and_a_campaign_one_controller(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    config, directory = tmp_path / "campaign.yaml", tmp_path / "campaign"
    config.write_text(yaml.safe_dump(CONFIG))
    on_cluster = ("--ray-address", cluster.address)
    first = start(config, directory, *on_cluster)
    while recorded(directory) < 2 and first.poll() is None:
        time.sleep(0.2)
    second = start(config, directory, *on_cluster)
    _, said = second.communicate(timeout=300)
    assert second.returncode == 2, said
    assert f"another campaign is running there: {os.uname().nodename}, process {first.pid}" in said

    # A node is killed with what runs there, and another like it joins.
    lost = cluster.nodes[2]
    cluster.remove(lost)
    cluster.add(cpus=1)
    while recorded(directory) < SHARDS and first.poll() is None:
        time.sleep(0.2)
    first.terminate()
    _, said = first.communicate(timeout=300)
    assert first.returncode == 130, said

    with Store(directory, create=False) as store:
        ran = store.totals().features
    nodes = {one.node_id: one for one in (lost, *cluster.nodes)}
    gpu, npu, *_ = cluster.nodes
    assert {name.rpartition(" ")[2] for name in ran if name.startswith("cuda on ")} == {gpu.node_id}
    assert {name.rpartition(" ")[2] for name in ran if name.startswith("npu on ")} == {npu.node_id}
    assert {name.rpartition(" ")[2] for name in ran if " on " in name} <= set(nodes)

    assert found(directory) == expected()
    deadline = time.monotonic() + 60
    while below(cluster.address) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert below(cluster.address) == []


def expected() -> Counts:
    """What the shards give where one process runs them one after the other."""
    counts: Counts = {}
    for index in range(SHARDS):
        target = target_for(CONFIG["seed"], index, CONFIG["targets"])
        size, profiles = CONFIG["shard_size"], CONFIG["profiles"]
        place = TARGETS[target].place
        tally = Tally(Shard(campaign_seed=CONFIG["seed"], index=index, size=size))
        for program in shard_programs(CONFIG["seed"], index, size, profiles, (), place):
            tally.add(program, judged(program))
        report = tally.report(0.0, 0.0)
        counts[index] = report.counts, report.by_key
    return counts


# From here on this process is connected to the cluster, while a pool is open.


@pytest.fixture
def pools(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[..., RayPool]]:
    """Makes pools of simulated workers on the cluster, one at a time, of those groups."""
    opened: list[RayPool] = []

    def made(*groups: WorkerGroup, deaths: Deaths | None = None) -> RayPool:
        while opened:
            opened.pop().close()
        names = tuple(dict.fromkeys(name for group in groups for name in group.targets))
        config = WorkerConfig(scratch=str(tmp_path), targets=names)
        there = Cluster(address=cluster.address, code=digest())
        opened.append(RayPool(config, groups, cluster=there, deaths=deaths))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


class Watched:
    """A pool that notes for which hardware tasks were given out, and on which they ran."""

    def __init__(self, pool: RayPool) -> None:
        self._pool = pool
        self.wanted: dict[Handle, str | None] = {}
        self.ran: dict[Handle, tuple[Task, str | None]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def submit(self, task: Task, hardware: str | None = None) -> Handle:
        handle = self._pool.submit(task, hardware)
        self.wanted[handle] = hardware
        return handle

    def wait(self, timeout: float) -> list[Finished]:
        done = self._pool.wait(timeout)
        self.ran |= {one.handle: (one.task, one.hardware) for one in done}
        return done


def test_what_was_found_on_a_card_is_looked_into_on_such_a_card(
    cluster: LocalCluster,
    pools: Callable[..., RayPool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_pool, "Worker", SimulatedWorker)
    other = cluster.add(cpus=1, gpus=1, **{"accelerator_type:A10G": 1})
    pool = Watched(pools(WorkerGroup(targets=("cuda",))))
    changes = {"targets": {"cuda": 1}, "workers": {"cuda": "auto"}, "ray_address": "auto"}
    config = config_from_data(CONFIG | changes, "test")
    while pool.states() != {"idle": 2}:
        pool.wait(1.0)
    with Store(tmp_path) as store:
        campaign = Campaign(config, tmp_path, pool, store, scratch=tmp_path, max_shards=6)
        assert campaign.run().ended == "nothing left"
        found = {row.program_id: row for row in store.failures()}
    cluster.remove(other)

    cards = {"simulated H100", "simulated A10G"}
    assert {row.hardware for row in found.values()} == cards
    given = {handle: pool.ran[handle] for handle in pool.wanted}
    shards = {on for task, on in given.values() if isinstance(task, ShardTask)}
    assert shards == cards
    looks = [handle for handle, (task, _) in given.items() if not isinstance(task, ShardTask)]
    assert {pool.wanted[one] for one in looks} == cards
    assert all(pool.wanted[one] == given[one][1] for one in looks)
    cases = [read_case(case) for case in find_cases([tmp_path / "corpus"])]
    assert cases and all(
        one.environment["card"] == found[one.original].hardware for one in cases if one.original
    )


def test_what_was_found_on_a_card_that_is_gone_waits(
    cluster: LocalCluster, pools: Callable[..., RayPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_pool, "Worker", SimulatedWorker)
    pool = pools(WorkerGroup(targets=("cuda",)))
    while not pool.takes("cuda"):
        pool.wait(1.0)
    assert pool.takes("cuda", "simulated H100") and not pool.takes("cuda", "simulated A10G")
    assert not pool.serves("cuda", "simulated A10G")
    with pytest.raises(RuntimeError, match="no slot is free"):
        pool.submit(RunTask((Program(),)), "simulated A10G")
    returned = cluster.add(cpus=1, gpus=1, **{"accelerator_type:A10G": 1})
    while not pool.takes("cuda", "simulated A10G"):
        pool.wait(1.0)
    assert pool.environment("cuda", "simulated A10G")["card"] == "simulated A10G"
    pool.submit(RunTask((Program(),) * 300), "simulated A10G")
    cluster.remove(returned)
    done: list[Finished] = []
    while not done:
        done = pool.wait(1.0)
    assert done[0].result == NoWorker() and pool.takes("cuda", "simulated H100")


def test_a_program_that_machines_die_of_is_set_aside_and_stays_so(
    cluster: LocalCluster,
    pools: Callable[..., RayPool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_pool, "Worker", LongWorker)
    group = WorkerGroup(targets=("cpu",), count=1, resources=(("doomed", 1.0),))
    shard = Shard(campaign_seed=5, index=0, size=1, profiles=(("eager", 1.0),))
    (program,) = shard_programs(5, 0, 1, {"eager": 1.0}, (), TARGETS["cpu"].place)
    host = os.uname().nodename
    with Store(tmp_path) as store:

        def killed_at_it(pool: RayPool) -> None:
            """Kills the node while it is at the program, and waits until that was counted."""
            before = store.read(machine_deaths).get(program_id(program), [])
            while (at := ray.get(pool.deaths.board.at.remote("worker 1"))) is None:
                assert pool.wait(0.2) == []
            ray.get(pool.deaths.board.note.remote("worker 1", at))  # looking takes it away
            cluster.remove(cluster.nodes[-1])
            while store.read(machine_deaths).get(program_id(program), []) == before:
                assert pool.wait(0.2) == []

        for died in (1, 2):  # each time a controller that has read what the one before wrote
            cluster.add(cpus=1, doomed=1)
            deaths = Deaths(store.read(machine_deaths), store.record_death)
            pool = pools(group, deaths=deaths)
            while not pool.takes("cpu"):
                assert pool.wait(1.0) == []
            pool.submit(ShardTask(shard))
            killed_at_it(pool)
            assert store.read(machine_deaths) == {program_id(program): [host] * died}
        cluster.add(cpus=1, doomed=1)
        done: list[Finished] = []
        while not done:
            done = pool.wait(1.0)
        report = done[0].result
        assert isinstance(report, ShardReport) and report.counts == {"set_aside": 1}

        store.begin(5, {}, pool.environment())
        for row in store.record_shard(report):
            FindingsQueue(
                config_from_data(CONFIG, "test"), tmp_path, store, pool.environment, tmp_path,
                time.monotonic,
            ).receive(row)  # fmt: skip
        (row,) = store.failures()
        assert row.state is State.SET_ASIDE and not store.pending()
        confirming = RunTask((program,))
        pool.submit(confirming)
        assert [one.result for one in pool.wait(1.0)] == [WorkerDied(0)]
    shown = CliRunner().invoke(app, ["triage", str(tmp_path)], env={"COLUMNS": "200"}).stdout
    assert f"2 machines died while it ran: {host}, {host}" in shown
    cluster.remove(cluster.nodes[-1])
