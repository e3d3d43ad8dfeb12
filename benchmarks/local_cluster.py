"""A Ray cluster of several raylets on this machine; its nodes can be killed, stopped, cut off."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from benchmarks.network import Network

ROOT = Path(__file__).resolve().parents[1]
STORE_BYTES = 80 << 20

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",
    "SPT_NOENV": "1",
    "PYTHONPATH": str(ROOT),
}
"""Of every process of the cluster."""


class LocalCluster:
    """A head without CPUs, and the nodes that are added. `redis` is the address of one that keeps
    what the head's control store knows, so that this may be restarted; with a `network` each node
    has a link of its own to the head; `of_head` are further options of Ray's for the head."""

    def __init__(
        self, folder: Path, redis: str | None = None, network: Network | None = None, **of_head: Any
    ) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._network = network
        self._links: dict[Any, str] = {}
        head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False} | of_head
        if redis is not None:
            head["external_addresses"] = [redis]
        self.head = self._add(temp_dir=str(folder), **head)
        self.nodes: list[Any] = []

    def _add(self, **options: Any) -> Any:
        return self._cluster.add_node(object_store_memory=STORE_BYTES, **options)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return str(self._cluster.address)

    def add(self, cpus: int = 1, gpus: int = 0, **resources: float) -> Any:
        """A further node."""
        has = {"num_cpus": cpus, "num_gpus": gpus, "resources": resources or None}
        if self._network is None:
            node = self._add(**has)
        else:
            link = self._network.add()
            with self._network.at(link):
                node = self._add(**has)
            self._links[node] = link
        self.nodes.append(node)
        return node

    @contextmanager
    def cut_off(self, node: Any) -> Iterator[None]:
        """No packet reaches the node or leaves it while the block runs."""
        assert self._network is not None
        self._network.cut(self._links[node])
        try:
            yield
        finally:
            self._network.mend(self._links[node])

    def remove(self, node: Any, *, kindly: bool = False) -> None:
        """Ends a node, by SIGKILL unless `kindly`."""
        self.nodes.remove(node)
        with suppress(Exception):  # some of its processes may be dead already
            self._cluster.remove_node(node, allow_graceful=kindly)
        if self._network is not None:
            self._network.remove(self._links.pop(node))

    def raylet(self, node: Any) -> psutil.Process:
        """The node's raylet."""
        from ray._private.ray_constants import PROCESS_TYPE_RAYLET

        return psutil.Process(node.all_processes[PROCESS_TYPE_RAYLET][0].process.pid)

    def alive(self, node: Any) -> bool:
        """Whether Ray has the node among those that it uses."""
        return any(
            entry["Alive"] and entry["ObjectStoreSocketName"] == node.plasma_store_socket_name
            for entry in self._cluster.global_state.node_table()
        )

    def restart_control_store(self) -> None:
        """Kills the control store, and starts it again."""
        self.head.kill_gcs_server(check_alive=False)
        self.head.start_gcs_server()

    def close(self) -> None:
        """Ends everything."""
        for node in self.nodes:
            with suppress(Exception):
                self.raylet(node).send_signal(signal.SIGCONT)
        self._cluster.shutdown()


@contextmanager
def local_cluster(
    redis: str | None = None, network: Network | None = None, **of_head: Any
) -> Iterator[LocalCluster]:
    """A cluster while the block runs; its files are in a folder of its own, which goes with it."""
    before = dict(os.environ)
    os.environ.update(SETTINGS)
    folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))  # short: sockets are put there
    # Ray notes the address of its last cluster in a folder that it takes for granted.
    os.environ["RAY_TMPDIR"] = str(folder)
    (folder / "ray").mkdir()
    try:
        with _exit_handlers_of_its_own():
            cluster = LocalCluster(folder, redis, network, **of_head)
            try:
                yield cluster
            finally:
                cluster.close()
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _exit_handlers_of_its_own() -> Iterator[None]:
    """What is registered for this process's exit while the block runs goes with it: Ray's handlers
    keep clients of the cluster, which a fork of this process cannot free."""
    made: list[Callable[..., Any]] = []
    register = atexit.register

    def registering(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        made.append(function)
        return register(function, *args, **options)

    try:
        with mock.patch("atexit.register", registering):
            yield
    finally:
        for function in made:
            atexit.unregister(function)
