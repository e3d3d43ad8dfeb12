"""Several ranks of one program: rank 0 is the child itself, the others are forks of it.

Each rank runs and judges the whole program, in step with the others wherever they meet in a
collective. They find each other by the environment variables that `torchrun` sets. Rank 0 speaks
for all: its own failure, or that of the rank that failed first on its own account.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import re
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attnfuzz.actors.child.outcomes import Data, failure
from attnfuzz.actors.sandbox.confine import signal_name

Emit = Callable[[dict[str, Any]], None]
Run = Callable[[Emit], Data]

PR_SET_PDEATHSIG = 1
GRACE_S = 5.0
"""Seconds that the other ranks have to end when rank 0 has failed."""

_LOST_PEERS = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|recv(?:Vector|Value) failed"
)
"""What gloo and its store say to those that remain when a rank has ended."""


def outcome(size: int, emit: Emit, run: Run) -> Data:
    """The outcome of a program of `size` ranks; `run` gives that of the rank it is called in. The
    files `rank-N.pid`, `rank-N.json` and `faults-N.txt` are left in the current folder."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(size),
    }  # fmt: skip
    ranks = {rank: _fork(rank, run) for rank in range(1, size)}
    _be(0)
    outcomes = {0: run(emit)}
    emit({"phase": "check"})  # a rank that does not end is missed by this phase's deadline
    passed = outcomes[0]["status"] == "passed"
    end = None if passed else time.monotonic() + GRACE_S
    for rank, pid in ranks.items():
        found = _end_of(rank, pid, end)
        if found is not None:
            outcomes[rank] = found
    return _combined(outcomes, size)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _be(rank: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    Path(f"rank-{rank}.pid").write_text(str(os.getpid()))


def _fork(rank: int, run: Run) -> int:
    leader = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != leader:
            os._exit(1)
        faults = open(f"faults-{rank}.txt", "w")  # noqa: SIM115  (the handler needs it for good)
        faulthandler.enable(faults)
        faulthandler.register(signal.SIGUSR2, faults)
        _be(rank)
        found = run(lambda message: None)
        Path(f"rank-{rank}.json").write_text(json.dumps(found))
    except BaseException:  # a defect of ours: a rank judges whatever the program raises itself
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _end_of(rank: int, pid: int, end: float | None) -> Data | None:
    """The outcome of a rank; a crash where it has left none. None where it was killed at `end`, a
    time.monotonic(): it may wait for what rank 0 will not do any more."""
    ended, status = os.waitpid(pid, 0 if end is None else os.WNOHANG)
    while not ended:
        if end is not None and time.monotonic() >= end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.01)
        ended, status = os.waitpid(pid, os.WNOHANG)
    try:
        found: Data = json.loads(Path(f"rank-{rank}.json").read_text())
        return found
    except (OSError, ValueError):
        return {"status": "failed", "failure": _crash(rank, status), "rejection": None}


def _crash(rank: int, status: int) -> Data:
    number = os.waitstatus_to_exitcode(status)
    name = signal_name(-number) if number < 0 else None
    how = f"was killed by {name}" if name else f"exited with code {number}, without a result"
    raised = {
        "type": f"Signal {name}" if name else "Exit", "message": f"rank {rank} {how}",
        "chain": [], "frames": [],
    }  # fmt: skip
    faults = Path(f"faults-{rank}.txt")
    texts = {"python_stacks": faults.read_text()} if faults.exists() else {}
    crash = failure("crash", "forward", oracle="watchdog", raised=raised, evidence=texts)
    return crash | {"signal": name}


def _combined(outcomes: Mapping[int, Data], size: int) -> Data:
    """Rank 0's outcome, with the failure of the rank that was not merely left alone."""
    failed = {rank: one["failure"] for rank, one in outcomes.items() if one["failure"]}
    first = outcomes[0]
    broken = [one for one in outcomes.values() if one["status"] == "not_run"]
    if broken:
        return broken[0]
    reasons = [one["rejection"] for one in outcomes.values() if one["status"] == "rejected"]
    if not failed:
        return first | {"status": "rejected", "rejection": reasons[0]} if reasons else first
    own = [rank for rank, found in failed.items() if not _lost_its_peers(found)]
    if not own and reasons:
        return first | {"status": "rejected", "rejection": reasons[0], "failure": None}
    rank = own[0] if own else min(failed)
    found = failed[rank]
    found["evidence"]["rank"] = f"rank {rank} of {size}; {len(failed)} of them failed"
    return first | {"status": "failed", "failure": found, "rejection": None}


def _lost_its_peers(found: Data) -> bool:
    return bool(found["raised"] and _LOST_PEERS.search(found["raised"]["message"]))
