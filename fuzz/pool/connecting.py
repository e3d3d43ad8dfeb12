"""Ray: one of our own on this machine, or the cluster that is there."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.job_config import JobConfig

import attnfuzz
from attnfuzz.actors.node import PACKAGES
from attnfuzz.actors.sandbox.sandbox import SandboxError

OBJECT_STORE_BYTES = 100 * 1024 * 1024
"""Reports are small; Ray's default would take a third of the machine's memory."""

LEFT_HERE = ("cases", "planted", "__pycache__")
"""Folders of ours that no worker needs."""


def start_local(
    cpus: int, folder: Path, needs: frozenset[str], devices: Mapping[str, int] | None
) -> None:
    """A Ray of our own on this machine, quiet, with everything it writes under `folder`. It looks
    for the accelerators that workers need, unless `devices` says what there is. Raises
    SandboxError."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Its monitor judges the whole machine's memory; ours is limited per sandbox.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    # Or its agents, when they change their titles, wipe the marker that the reaper looks for.
    os.environ.setdefault("SPT_NOENV", "1")
    # Ray's own is 15: beside other work programs would starve, and their deadlines go on.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Workers shall find us where we are. Not by PYTHONPATH: the toolchain's interpreter, which they
    # start, would look there too, and find our torch, or our folders, before its own.
    root = str(Path(attnfuzz.__file__).resolve().parents[1])
    given = dict(devices or {})
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    try:
        with contextlib.chdir(empty):  # Ray puts the current folder first on its workers' path
            ray.init(
                address="local",
                num_cpus=cpus,
                num_gpus=None if "GPU" in needs and devices is None else given.get("GPU", 0),
                resources={name: n for name, n in given.items() if name != "GPU"} or None,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                job_config=JobConfig(_py_driver_sys_path=[root]),
                _temp_dir=str(folder),
            )
    except Exception as error:  # whatever it is, the machine has it, not a program
        ray.shutdown()
        raise SandboxError(f"Ray cannot be started: {str(error).strip()}") from error


def connect(address: str, runtime_env: Mapping[str, Any], ship: bool) -> None:
    """Connects to the cluster at `address` ("auto": the one of this machine). With `ship` its
    workers get our code from here; otherwise it must be installed there. Raises SandboxError."""
    env = dict(runtime_env)
    with contextlib.ExitStack() as stack:
        if ship:
            env["py_modules"] = [*env.get("py_modules", ()), stack.enter_context(our_code())]
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=env,
                job_config=JobConfig(_py_driver_sys_path=[]),
            )
        except Exception as error:  # no cluster, another version of Ray or Python, …
            ray.shutdown()
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise SandboxError(f"the Ray cluster {address} cannot be used: {said[0]}") from error


@contextmanager
def our_code() -> Iterator[str]:
    """A folder with the code of ours that runs on the nodes of a cluster."""
    root = Path(attnfuzz.__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix="attnfuzz-code-") as made:
        package = Path(made) / "attnfuzz"
        package.mkdir()
        for file in root.glob("*.py"):
            shutil.copy(file, package)
        for name in PACKAGES:
            ignored = shutil.ignore_patterns(*LEFT_HERE)
            shutil.copytree(root / name, package / name, ignore=ignored)
        yield str(package)
