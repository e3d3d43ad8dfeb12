"""Programs of several ranks, on one node and on two that have networks of their own: all alike?

    PYTHONPATH=. python benchmarks/nodes.py [--seed 1] [--shards 4]

Two raylets run in network namespaces, each with an address and a link of its own. A campaign of the
profile `ranks` runs on a worker whose ranks are on one node, then on one whose ranks are on both
(`nodes: 2`). The shards of both are compared: what became of their programs, and the keys of what
failed. Exit code 1 where they differ, 2 where this process cannot have a network of its own (it
takes root, or user namespaces).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from attnfuzz.actors.sandbox import reaper
from attnfuzz.corpus.store.store import DATABASE
from benchmarks.local_cluster import ROOT, LocalCluster, local_cluster
from benchmarks.network import Network, run_inside

SHARD_SIZE = 5
Report = tuple[dict[str, int], dict[str, int]]


def reports(directory: Path) -> dict[int, Report]:
    """By shard: how many programs by status, and failures by key."""
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(f"file:{directory / DATABASE}?mode=ro", uri=True)
        with contextlib.closing(connection):
            rows = connection.execute('select "index", report from shards').fetchall()
        parsed = {index: json.loads(report) for index, report in rows}
        return {index: (one["counts"], one["by_key"]) for index, one in parsed.items()}
    return {}


def campaign(cluster: LocalCluster, folder: Path, seed: int, shards: int, nodes: int) -> float:
    """Runs one until the first shards are recorded; gives the seconds that took."""
    group: dict[str, Any] = {"count": 1, "cpus": 2} | ({"nodes": nodes} if nodes > 1 else {})
    config = {
        "seed": seed, "minutes": 60, "shard_size": SHARD_SIZE, "profiles": {"ranks": 1},
        "workers": {"cpu": group}, "shipped": False, "steering": False,
        "minimize": {"pool_share": 0.01},
    }  # fmt: skip
    file = folder / f"{nodes}.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "attnfuzz", "launch", str(file), "--json"]
    command += ["--dir", str(folder / str(nodes)), "--ray-address", cluster.address]
    environment = {k: v for k, v in os.environ.items() if k != reaper.MARKER}
    began = time.monotonic()
    with (folder / f"{nodes}.log").open("wb") as log:
        driver = subprocess.Popen(
            command, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
        )
        try:
            while len(set(range(shards)) - reports(folder / str(nodes)).keys()):
                if driver.poll() is not None:
                    raise SystemExit((folder / f"{nodes}.log").read_text()[-2000:])
                time.sleep(0.5)
            return time.monotonic() - began
        finally:
            driver.terminate()
            driver.wait(120)


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--shards", type=int, default=4)
    chosen = options.parse_args(arguments)
    if not run_inside():
        print("this process may have no network of its own", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="nodes-") as made,
        local_cluster(network=Network()) as cluster,
    ):
        for _ in range(2):
            cluster.add(cpus=2)
        folder = Path(made)
        seconds = {n: campaign(cluster, folder, chosen.seed, chosen.shards, n) for n in (1, 2)}
        one, two = (reports(folder / str(n)) for n in (1, 2))
    shown = Table("shard", "on one node", "on two nodes", "alike")
    for index in range(chosen.shards):
        shown.add_row(
            str(index), *(str(report[index][0] | report[index][1]) for report in (one, two)),
            "yes" if one[index] == two[index] else "no",
        )  # fmt: skip
    Console(width=120).print(shown)
    print(
        f"seed {chosen.seed}, {chosen.shards} shards of {SHARD_SIZE} programs of profile ranks; "
        f"{seconds[1]:.0f} s on one node, {seconds[2]:.0f} s on two; two raylets with an address "
        f"each; {platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    return int(any(one[index] != two[index] for index in range(chosen.shards)))


if __name__ == "__main__":
    sys.exit(main())
