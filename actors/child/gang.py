"""Several ranks of one program: forks of this process, which only waits for them.

Each rank runs and judges the whole program, in step with the others wherever they meet in a
collective. They find each other by the environment variables that `torchrun` sets. What rank 0
says of its phases is passed on, and the outcome of each rank when it ends. The watchdog stops those
that then wait for ever, and `sandbox.together` makes one outcome of all.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import secrets
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfuzz.actors.child.flight import Recorder
from attnfuzz.actors.child.outcomes import Data, failure
from attnfuzz.actors.sandbox import ports
from attnfuzz.actors.sandbox.confine import STACKS_SIGNAL, fatal_signal, signal_name
from attnfuzz.actors.sandbox.messages import Messages

Emit = Callable[[dict[str, Any]], None]
Run = Callable[[Emit], Data]

PR_SET_PDEATHSIG = 1
GLANCE_S = 2.0
"""How often silent ranks are looked at: one may be stuck in a crash."""

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
"""By what back-ends are told which network to use; gloo's own choice is that of the host's name,
which is often one that no other node reaches."""

BEFORE = ("setup", "build", "reference", "eager")
"""The phases before the program is compiled."""


def run_ranks(size: int, part: Data | None, emit: Emit, run: Run) -> None:
    """Runs a program of `size` ranks, or those of them that are this node's `part`, to their end;
    `run` gives the outcome of the rank it is called in. Each is emitted, as `{"rank", "outcome",
    "left": whether the rank gave it itself}`. The files `rank-N.pid`, `rank-N.json`, `faults-N.txt`
    and those of `child.flight` are left in the current folder. Raises what is a defect of ours."""
    with _meeting_at(part) as where:
        ranks = range(size) if part is None else part["ranks"]
        os.environ |= where | {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(len(ranks))}
        gang = _Gang(emit)
        gang.start(ranks, run)
        gang.watch()


@contextmanager
def _meeting_at(part: Data | None) -> Iterator[dict[str, str]]:
    """The variables that say where ranks meet: at the `part`'s address, or at a port of this
    machine that is held meanwhile."""
    if part is None:
        with ports.reserved() as port:
            yield {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return
    over = {} if part["interface"] is None else dict.fromkeys(INTERFACES, part["interface"])
    yield over | {"MASTER_ADDR": part["address"], "MASTER_PORT": str(part["port"])}


@dataclass
class _Gang:
    """The ranks, as long as they run."""

    emit: Emit
    _running: dict[int, int] = field(default_factory=dict)
    """The pid of each rank that runs."""
    _messages: Messages = field(init=False)
    _dying: set[int] = field(default_factory=set)

    def start(self, ranks: Iterable[int], run: Run) -> None:
        """Forks them."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        token = secrets.token_hex(16)
        self._messages = Messages(reading, token)
        for local, rank in enumerate(ranks):
            self._running[rank] = _fork(rank, local, run, writing, token)
        os.close(writing)

    def watch(self) -> None:
        """Returns when all have ended."""
        poll = select.poll()
        poll.register(self._messages.fd, select.POLLIN)
        ends = {os.pidfd_open(pid): rank for rank, pid in self._running.items()}
        for end in ends:
            poll.register(end, select.POLLIN)
        while ends:
            ready = [fd for fd, _ in poll.poll(GLANCE_S * 1000)]
            if not ready:
                self._end_the_dying()
            if self._messages.fd in ready and not self._pass_on():
                poll.unregister(self._messages.fd)
            for fd in ready:
                if fd in ends:
                    poll.unregister(fd)
                    os.close(fd)
                    self._collect(ends.pop(fd))
        os.close(self._messages.fd)

    def _pass_on(self) -> bool:
        """Passes on what rank 0 has said; False when nothing more will come."""
        received, more = self._messages.read()
        for message in received:
            self.emit(message)
        return more

    def _collect(self, rank: int) -> None:
        _, status = os.waitpid(self._running.pop(rank), 0)
        if rank == 0:
            self._pass_on()
            self.emit({"phase": "check"})  # a rank that does not end is missed by its deadline
        found = _left_by(rank)
        outcome = found or _crash(rank, status)
        self.emit({"rank": rank, "outcome": outcome, "left": found is not None})

    def _end_the_dying(self) -> None:
        """Ends ranks that have had a fatal signal and are there still: where the heap is corrupt,
        torch's own printer of native stacks can be stuck for ever."""
        for rank, pid in self._running.items():
            number = fatal_signal(_faults(rank))
            if number is not None and rank in self._dying:
                os.kill(pid, signal.SIGKILL)
            elif number is not None:
                self._dying.add(rank)


def _fork(rank: int, local: int, run: Run, pipe: int, token: str) -> int:
    leader = os.getpid()
    pid = os.fork()
    if pid:
        Path(f"rank-{rank}.pid").write_text(str(pid))
        return pid
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != leader:
            os._exit(1)
        faults = open(f"faults-{rank}.txt", "w")  # noqa: SIM115  (the handler needs it for good)
        faulthandler.enable(faults)
        faulthandler.register(STACKS_SIGNAL, faults)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(local)}
        recorder = Recorder(rank)
        recorder.begin()
        heard = _Heard(pipe if rank == 0 else None, token)
        found = run(heard)
        recorder.write()
        _leave_outcome(rank, found | {"compiled since": heard.compiled_since_ns})
    except BaseException:  # a defect of ours: a rank judges whatever the program raises itself
        _leave_outcome(rank, {"defect": traceback.format_exc()})
    finally:
        sys.stderr.flush()
        os._exit(0)


class _Heard:
    """Takes what a rank says of its phases, and sends it to the leader over `pipe`, if any."""

    def __init__(self, pipe: int | None, token: str) -> None:
        self._pipe, self._token, self._pid = pipe, token, os.getpid()
        self.compiled_since_ns: int | None = None
        """When the rank left its eager runs for good, by time.time_ns()."""

    def __call__(self, message: dict[str, Any]) -> None:
        if os.getpid() != self._pid:  # a fork of the program's that came back into our code
            os._exit(1)
        if message.get("phase") in BEFORE:
            self.compiled_since_ns = None
        elif "phase" in message and self.compiled_since_ns is None:
            self.compiled_since_ns = time.time_ns()
        if self._pipe is not None:
            data = f"\n{self._token}{json.dumps(message)}\n".encode()
            while data:
                data = data[os.write(self._pipe, data) :]


def _leave_outcome(rank: int, found: Data) -> None:
    unfinished = Path(f"rank-{rank}.new")
    unfinished.write_text(json.dumps(found))
    unfinished.rename(f"rank-{rank}.json")


def _left_by(rank: int) -> Data | None:
    """The outcome that a rank has left, if it has. Raises RuntimeError where it is a defect."""
    try:
        found: Data = json.loads(Path(f"rank-{rank}.json").read_text())
    except (OSError, ValueError):
        return None
    if "status" not in found:
        raise RuntimeError(f"rank {rank}: {found.get('defect', 'its outcome is malformed')}")
    return found


def _crash(rank: int, status: int) -> Data:
    number = os.waitstatus_to_exitcode(status)
    faults = _faults(rank)
    if (first := fatal_signal(faults)) is not None:
        number = -first  # torch's printer of native stacks, which comes after it, can abort
    name = signal_name(-number) if number < 0 else None
    how = f"was killed by {name}" if name else f"exited with code {number}, without a result"
    raised = {
        "type": f"Signal {name}" if name else "Exit", "message": f"rank {rank} {how}",
        "chain": [], "frames": [],
    }  # fmt: skip
    texts = {"python_stacks": faults}
    crash = failure("crash", "forward", oracle="watchdog", raised=raised, evidence=texts)
    return {"status": "failed", "failure": crash | {"signal": name}, "rejection": None}


def _faults(rank: int) -> str:
    try:
        return Path(f"faults-{rank}.txt").read_text(errors="replace")
    except OSError:
        return ""
