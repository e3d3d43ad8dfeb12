"""What the workers of a cluster leave behind on this machine."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from attnfuzz.actors.sandbox import reaper
from attnfuzz.actors.sandbox.scratch import NAME
from benchmarks.simulated import BELOW, below

RAY = "ray"  # of Ray itself, in a temporary folder


def scratch() -> set[Path]:
    """The scratch folders in /tmp that nobody waits to remove: whoever works in one has a reaper,
    which names it."""
    every = set(Path("/tmp").glob(f"{NAME}*"))
    commands = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
    name = Path(reaper.__file__).name
    held = {words[-1] for words in commands if any(Path(word).name == name for word in words)}
    return {path for path in every if str(path) not in held and path.exists()}


def left(address: str, temporary: Path, before: set[Path]) -> list[str]:
    """Processes and files of the cluster's workers that are there though no campaign runs."""
    files = [f"{path} is left" for path in sorted(temporary.iterdir()) if path.name != RAY]
    files += [f"{path} is left" for path in sorted(scratch() - before)]
    return files + [f"process {one.pid} is left: {' '.join(BELOW)}" for one in below(address)]


def nothing_left(
    address: str, temporary: Path, before: set[Path], within: float = 60.0
) -> list[str]:
    """What is still there after so many seconds."""
    end = time.monotonic() + within
    while (there := left(address, temporary, before)) and time.monotonic() < end:
        time.sleep(0.5)
    return there
