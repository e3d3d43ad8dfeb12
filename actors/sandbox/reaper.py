"""A process that outlives a killed driver just long enough to clean up after it.

Run as a script: `python reaper.py FD RUN_ID ROOT`. FD is the read end of a pipe whose write end
only the driver holds, so it ends when the driver does, however that comes about. Then (or at a
byte, by which the driver asks for it) every process of the run (its environment says
`ATTNFUZZ_RUN=RUN_ID`, or it descends from one) is killed and the scratch folder ROOT removed.
A byte on its standard output says that from now on it cleans up, whoever is killed.
Standard library only.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import types
from pathlib import Path

MARKER = "ATTNFUZZ_RUN"
SECOND_LOOK_S = 0.1
EXECUTING_S = 5.0  # at most: a process in the middle of an exec shows no environment
REMOVALS = 10


def clean(root: Path, run_id: str) -> list[int]:
    """Kills the processes of run `run_id` and removes `root`; returns those that would not die."""
    from attnfuzz.actors.sandbox import files, procs

    def members() -> list[int]:
        marked = procs.marked(MARKER, run_id)
        return sorted({pid for one in marked for pid in (one, *procs.descendants(one))})

    procs.kill_all(members)
    end = time.monotonic() + EXECUTING_S
    for _ in range(REMOVALS):  # what was between a fork and an exec makes its folders again
        time.sleep(SECOND_LOOK_S)
        while procs.executing() and time.monotonic() < end:
            time.sleep(0.01)
        left = procs.kill_all(members)
        if not root.exists():
            break
        files.remove_tree(root)
    return left


def main() -> None:
    """Waits for the driver to end, or for a byte from it, and cleans up after its run."""
    package = sys.modules["attnfuzz"] = types.ModuleType("attnfuzz")  # as the zygote has it
    package.__path__ = [str(Path(__file__).resolve().parents[2])]
    fd, run_id, root = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if child := os.fork():  # Ray kills the children of a worker that exits, not theirs
        os.waitpid(child, 0)
        return
    for module in ("files", "procs"):  # now: the folder of the code may go with its node
        importlib.import_module(f"attnfuzz.actors.sandbox.{module}")
    os.write(sys.stdout.fileno(), b".")
    os.close(sys.stdout.fileno())
    os.read(fd, 1)
    clean(root, run_id)


if __name__ == "__main__":
    main()
