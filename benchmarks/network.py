"""A network of this process's own, whose nodes have links that can be cut.

The process runs again in a network namespace in which there is nothing but a bridge. A node is a
further namespace with a link to it: what is started there reaches the others by this link alone,
and by nothing once it is cut. All of it ends with the process, and the machine's own network is
never touched.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INSIDE = "ATTNFUZZ_OWN_NETWORK"
"""In the environment of a process that runs in a network of its own."""

BRIDGE = "br0"
HOST = "10.77.0.1"
GATEWAY = "10.77.255.254"  # nobody's: a default route tells programs which address is theirs
CLONE_NEWNET = 0x40000000


def run_inside() -> bool:
    """Whether this process is in a network of its own. If it is not, it becomes one that is, where
    the machine allows it."""
    if os.environ.get(INSIDE):
        _bridge()
        return True
    unshare = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    probe = " && ".join(["mount -t tmpfs tmpfs /run", "ip link add br0 type bridge"])
    try:
        code = subprocess.run([*unshare, "sh", "-c", probe], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    if code.returncode:
        return False
    os.environ[INSIDE] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, *sys.orig_argv[1:]])


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _bridge() -> None:
    """The empty bridge, and a place for the names of namespaces that is not the machine's."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{HOST}/16", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    _ip("route", "add", "default", "via", GATEWAY, "dev", BRIDGE)


class Network:
    """The nodes' namespaces and links."""

    def __init__(self) -> None:
        self._made = 0

    def add(self) -> str:
        """A further node's namespace, with its link; gives its name."""
        self._made += 1
        name, link = f"n{self._made}", f"v{self._made}"
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", BRIDGE, "up")
        address = f"10.77.{1 + self._made // 250}.{1 + self._made % 250}"
        _ip("-n", name, "addr", "add", f"{address}/16", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        _ip("-n", name, "route", "add", "default", "via", GATEWAY)
        return name

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """What this thread starts while the block runs is in the namespace."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(Path("/run/netns", name))
            try:
                yield
            finally:
                _enter(Path(f"/proc/self/fd/{here}"))
        finally:
            os.close(here)

    def cut(self, name: str) -> None:
        """No packet reaches the node or leaves it, and no connection is told of it."""
        _ip("link", "set", f"v{name[1:]}", "down")

    def mend(self, name: str) -> None:
        """Its link is as it was."""
        _ip("link", "set", f"v{name[1:]}", "up")

    def remove(self, name: str) -> None:
        """Takes the node's link away; its namespace ends with its last process."""
        _ip("link", "del", f"v{name[1:]}")
        _ip("netns", "del", name)


def _enter(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    finally:
        os.close(descriptor)
