"""Several real raylets on one machine, and workers that only pretend to run programs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnfuzz.actors.sandbox import reaper
from attnfuzz.actors.shard import Shard, Tally
from attnfuzz.actors.targets.registry import TARGETS, target_for
from attnfuzz.corpus.store.store import DATABASE, Store, StoreError
from attnfuzz.generators.strategies.shards import shard_programs
from benchmarks.local_cluster import LocalCluster, local_cluster
from benchmarks.simulated import below, judged

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


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A node with a GPU, one with an NPU, and one with neither."""
    with local_cluster() as opened:
        opened.add(cpus=1, gpus=1)
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
