"""A campaign on a cluster whose nodes, workers and driver die: is anything lost, doubled or left?

    PYTHONPATH=. python benchmarks/chaos.py [--events 200] [--redis SERVER] [--real]

Several raylets run on this machine, and `attnfuzz launch` as a process of its own; its directory
lies on a small disk (a tmpfs, where it can be mounted). Events are drawn from the seed. After each,
every node has to have a worker again, and the campaign has to record a further shard; from the
moment when what was taken is back, that is timed. In the end the directory is examined: no shard is
missing or counted twice, every failure of every recorded shard is there once, and so on
(`benchmarks/campaign_state.py`), and nothing is left of any worker. Exit code 1 where anything is
wrong.

Each node has a link of its own to the others, which an event cuts, where the machine allows this
process a network namespace (root, or user namespaces). Restarting the control store needs a redis.
What cannot be done is said. Workers are simulated unless `--real`: they draw real programs, sleep,
and judge by the programs' parts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from unittest import mock

import psutil
import yaml
from rich.console import Console
from rich.table import Table

from attnfuzz.actors.sandbox import reaper
from attnfuzz.corpus.store.store import Store, StoreError
from benchmarks.campaign_state import State, damage, grown, inspect
from benchmarks.free_port import free_port
from benchmarks.leftovers import RAY, nothing_left, scratch
from benchmarks.local_cluster import ROOT, LocalCluster, local_cluster
from benchmarks.network import Network, run_inside

SHARD_SIZE = 3
DISK_MB = 192
NODES = 3
BACK_S = 30.0
PATIENCE_S = 300.0  # after which the campaign is taken to be stuck

CONFIG = {
    "minutes": 10_000,
    "shard_size": SHARD_SIZE,
    "profiles": {"eager": 1},
    "workers": {"cpu": "auto"},
    "shipped": False,
    "steering": False,
    "variants": False,
    "confirm_runs": 2,
    "repro_runs": 1,
    "minimize": {"max_candidates": 10, "seconds": 30},
}


@dataclass
class Event:
    """What was done, how long after its end all was as before, and what was wrong."""

    what: str
    back_s: float
    violations: list[str] = field(default_factory=list)


class Chaos:
    """The campaign, its cluster, and what can be done to them."""

    def __init__(self, cluster: LocalCluster, folder: Path, seed: int, *, real: bool) -> None:
        self._cluster = cluster
        self._random = Random(seed)
        self._module = "attnfuzz" if real else "benchmarks.simulated_launch"
        self._sub = ["launch"] if real else []
        self.directory = folder / "disk" / "campaign"
        self._log = folder / "driver.log"
        self._config = folder / "campaign.yaml"
        self._config.write_text(yaml.safe_dump(CONFIG | {"seed": seed}))
        self._driver: subprocess.Popen[bytes] | None = None
        self.ended: list[str] = []
        """How the driver ended by itself, each time."""

    # -- the driver

    def start(self) -> None:
        """Starts the driver, which goes on where there is something to go on with."""
        command = [sys.executable, "-m", self._module, *self._sub, str(self._config), "--json"]
        command += ["--dir", str(self.directory), "--resume", "--wait", "60"]
        command += ["--ray-address", self._cluster.address]
        environment = {k: v for k, v in os.environ.items() if k != reaper.MARKER}
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(
                command, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def watch(self) -> None:
        """Starts the driver again where it has ended, as a job that is retried is."""
        if self._driver is None or self._driver.poll() is not None:
            if self._driver is not None:
                self.ended.append(f"{self._driver.returncode}: {self.said(300)}")
            self.start()

    def shards(self) -> int:
        """How many shards are recorded."""
        try:
            with Store(self.directory, create=False) as store:
                return store.totals().shards
        except (StoreError, OSError):
            return -1

    def until_back(self) -> float:
        """Waits until each node has a worker and a further shard is recorded; gives the seconds
        that took, or infinity."""
        began, before = time.monotonic(), self.shards()
        while time.monotonic() - began < PATIENCE_S:
            self.watch()
            self.replace_dead()
            if self.shards() > max(before, 0) and all(map(self.workers, self._cluster.nodes)):
                return time.monotonic() - began
            time.sleep(0.2)
        return float("inf")

    def workers(self, node: Any) -> list[int]:
        """The processes of the workers on a node."""
        titles = {"ray::SimulatedProcess", "ray::WorkerProcess"}
        with contextlib.suppress(psutil.NoSuchProcess):
            there = self._cluster.raylet(node).children()
            return sorted(one.pid for one in there if titles & set(_words(one)))
        return []

    def replace_dead(self) -> None:
        """Another node for each that Ray has given up."""
        for node in list(self._cluster.nodes):
            if not self._cluster.alive(node):
                self._cluster.remove(node)
                self._cluster.add()

    def stop(self) -> int:
        """Asks the driver to end."""
        assert self._driver is not None
        self._driver.terminate()
        return self._driver.wait(120)

    def said(self, characters: int = 1500) -> str:
        """The last that the driver has printed."""
        return self._log.read_text(errors="replace")[-characters:]

    # -- what is done

    def raylet_killed(self) -> None:
        """SIGKILL for a node's raylet; another node like it joins."""
        node = self._random.choice(self._cluster.nodes)
        self._cluster.raylet(node).kill()
        time.sleep(self._random.uniform(0, 3))
        self._cluster.remove(node)
        self._cluster.add()

    def node_removed(self) -> None:
        """A node leaves as a drained one does; another joins after a while."""
        self._cluster.remove(self._random.choice(self._cluster.nodes), kindly=True)
        time.sleep(self._random.uniform(0, 3))
        self._cluster.add()

    def node_added(self) -> None:
        """A further node joins, and leaves after a while."""
        node = self._cluster.add()
        time.sleep(self._random.uniform(2, 6))
        self._cluster.remove(node)

    def worker_killed(self) -> None:
        """SIGKILL for a worker's process."""
        there = [pid for node in self._cluster.nodes for pid in self.workers(node)]
        if there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(there), signal.SIGKILL)

    def driver_killed(self) -> None:
        """SIGKILL for the driver, which is started again."""
        assert self._driver is not None
        self._driver.kill()
        self._driver.wait()
        self.start()

    def control_store_restarted(self) -> None:
        """SIGKILL for Ray's control store, which is started again."""
        self._cluster.restart_control_store()

    def disk_full(self) -> None:
        """The directory's disk is full for some seconds."""
        filler = self.directory.parent / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
        end = time.monotonic() + self._random.uniform(10, 60)
        while time.monotonic() < end:
            time.sleep(0.5)
        filler.unlink(missing_ok=True)

    def raylet_stopped(self) -> None:
        """A node does not answer (SIGSTOP) for a while."""
        node = self._random.choice(self._cluster.nodes)
        raylet = self._cluster.raylet(node)
        raylet.suspend()
        time.sleep(self._random.uniform(1, 90))  # Ray takes it for dead after half a minute or more
        raylet.resume()

    def partition(self) -> None:
        """No packet passes between a node and the controller for a while."""
        node = self._random.choice(self._cluster.nodes)
        with self._cluster.cut_off(node):
            time.sleep(self._random.uniform(1, 90))


def _words(process: psutil.Process) -> list[str]:
    """Of a process's title, up to a dot: "ray::Worker.run" is "ray::Worker"."""
    with contextlib.suppress(psutil.Error):
        return [word.partition(".")[0] for word in " ".join(process.cmdline()).split()]
    return []


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of `DISK_MB` at `folder`, where one can be mounted."""
    folder.mkdir()
    mounted = shutil.which("mount") is not None and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)],
        capture_output=True, check=False,
    ).returncode  # fmt: skip
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


@contextlib.contextmanager
def control_store_memory(server: str | None) -> Iterator[str | None]:
    """The address of a redis while the block runs."""
    if server is None:
        yield None
        return
    port = free_port()
    process = subprocess.Popen(
        [server, "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def temporary_folder(folder: Path) -> Iterator[Path]:
    """Where all processes that are started while the block runs put temporary files."""
    (folder / RAY).mkdir(parents=True)
    with mock.patch.dict(os.environ, TMPDIR=str(folder)):
        yield folder


def play(chaos: Chaos, events: int, seed: int, kinds: Sequence[str]) -> Iterator[Event]:
    """The events, as they are over."""
    random = Random(seed + 1)
    before = State()
    chaos.start()
    chaos.until_back()
    for _ in range(events):
        what = random.choice(list(kinds))
        KINDS[what](chaos)
        back_s = chaos.until_back()
        state = inspect(chaos.directory)
        wrong = damage(state, SHARD_SIZE) + grown(before, state)
        if back_s == float("inf"):
            wrong.append(f"no shard for {PATIENCE_S:.0f} s: {chaos.said()}")
        before = state
        yield Event(what, round(back_s, 1), wrong)


def table(events: Sequence[Event]) -> Table:
    """By kind of event: how many, how soon the campaign went on, what was wrong."""
    shown = Table("event", "times", "back after, median", "at most", "violations")
    for what in sorted({one.what for one in events}):
        these = [one for one in events if one.what == what]
        seconds = [one.back_s for one in these]
        wrong = sum(len(one.violations) for one in these)
        shown.add_row(
            what.replace("_", " "), str(len(these)), f"{median(seconds):.1f} s",
            f"{max(seconds):.1f} s", str(wrong or "none"),
        )  # fmt: skip
    return shown


KINDS = {
    "raylet_killed": Chaos.raylet_killed,
    "node_removed": Chaos.node_removed,
    "node_added": Chaos.node_added,
    "worker_killed": Chaos.worker_killed,
    "driver_killed": Chaos.driver_killed,
    "control_store_restarted": Chaos.control_store_restarted,
    "disk_full": Chaos.disk_full,
    "partition": Chaos.partition,
    "raylet_stopped": Chaos.raylet_stopped,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--events", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--redis", help="a redis-server; without one the control store stays")
    options.add_argument("--real", action="store_true", help="real programs, with torch")
    options.add_argument("--minutes", type=float, default=float("inf"), help="no event after that")
    chosen = options.parse_args(arguments)
    network = Network() if run_inside() else None
    began, done, before = time.monotonic(), list[Event](), scratch()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as made,
        small_disk(Path(made) / "disk") as mounted,
        control_store_memory(chosen.redis) as redis,
        temporary_folder(Path(made) / "t") as temporary,
        local_cluster(redis, network) as cluster,
    ):
        needs = {"disk_full": mounted, "control_store_restarted": redis, "partition": network}
        kinds = [kind for kind in KINDS if needs.get(kind, True)]
        for _ in range(NODES):
            cluster.add()
        chaos = Chaos(cluster, Path(made), chosen.seed, real=chosen.real)
        for one in play(chaos, chosen.events, chosen.seed, kinds):
            done.append(one)
            print(
                f"{len(done):4} {one.what:24} {one.back_s:6.1f} s", *one.violations, sep="\n     "
            )
            sys.stdout.flush()
            if time.monotonic() - began > 60 * chosen.minutes:
                break
        code = chaos.stop()
        state = inspect(chaos.directory)
        wrong = [] if code == 130 else [f"the driver ended with {code}: {chaos.said()}"]
        missing = sorted(set(range(max(state.shards, default=-1) + 1)) - set(state.shards))
        in_flight = NODES + 1
        wrong += [f"shards are missing: {missing}"] if len(missing) > in_flight else []
        wrong += nothing_left(cluster.address, temporary, before)
        states = Counter(state.failures.values())
    wrong += [violation for one in done for violation in one.violations]
    late = [one for one in done if one.back_s > BACK_S]
    Console(width=110).print(table(done))
    sort = "real programs" if chosen.real else "simulated programs"
    absent = sorted(set(KINDS) - set(kinds))
    print(
        f"{len(done)} events of seed {chosen.seed} in {(time.monotonic() - began) / 60:.0f} min, "
        f"{sort}: {len(state.shards)} shards, {len(state.failures)} failures, "
        f"{len(state.buckets)} buckets; the driver ended {len(chaos.ended)} times by itself, and "
        f"was started again; {len(late)} times back after more than {BACK_S:.0f} s; "
        f"{len(wrong) or 'no'} violations; not done: {', '.join(absent) or 'nothing'}; "
        f"{platform.platform()}, {os.cpu_count()} cores"
    )
    print("failures by state:", dict(sorted((k.value, v) for k, v in states.items())))
    print(*(f"the driver ended with {one}" for one in chaos.ended), sep="\n")
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
