"""Several ranks of one program: forks of this process, which only watches over them.

Each rank runs and judges the whole program, in step with the others wherever they meet in a
collective. They find each other by the environment variables that `torchrun` sets. What rank 0
says of its phases is passed on. Where one dies or fails, those that then wait for ever are stopped.
The outcome is rank 0's, or the failure of the rank that failed on its own account; and where all
pass, it is a failure still if they did not do the same together (see `sandbox.collectives`).
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import re
import secrets
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfuzz.actors.child.flight import Recorder
from attnfuzz.actors.child.outcomes import Data, diff, failure
from attnfuzz.actors.sandbox import collectives, ports, procs
from attnfuzz.actors.sandbox.activity import Activity
from attnfuzz.actors.sandbox.confine import STACKS_SIGNAL, fatal_signal, signal_name
from attnfuzz.actors.sandbox.messages import Messages

Emit = Callable[[dict[str, Any]], None]
Run = Callable[[Emit], Data]

PR_SET_PDEATHSIG = 1
ALONE_S = 5.0
"""Seconds that all ranks which still run have to be asleep, after another has died or failed, until
they are stopped: nobody would wake them."""

LOOK_S = 0.5
"""How often they are looked at then."""

GLANCE_S = 2.0
"""How often silent ranks are looked at before: one may be stuck in a crash."""

BEFORE = ("setup", "build", "reference", "eager")
"""The phases before the program is compiled."""

_LOST_PEERS = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|recv(?:Vector|Value) failed"
    r"|Connection was likely closed|connectFullMesh failed|Application timeout caused pair closure"
)
"""What gloo and its store say to those that remain when a rank has ended."""


def outcome(size: int, emit: Emit, run: Run, layer: str = "eager") -> Data:
    """The outcome of a program of `size` ranks; `run` gives that of the rank it is called in, and
    `layer` is that which the program is compiled by. The files `rank-N.pid`, `rank-N.json`,
    `faults-N.txt` and those of `child.flight` are left in the current folder. Raises what is a
    defect of ours."""
    with ports.reserved() as port:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size),
        }  # fmt: skip
        gang = _Gang(size, emit)
        gang.start(run)
        gang.watch()
    return _combined(gang.outcomes, size, layer)


@dataclass
class _Gang:
    """The ranks, as long as they run, and the outcomes of those that have ended."""

    size: int
    emit: Emit
    outcomes: dict[int, Data] = field(default_factory=dict)
    _running: dict[int, int] = field(default_factory=dict)
    """The pid of each rank that runs."""
    _messages: Messages = field(init=False)
    _activity: Activity | None = None
    """Of those that still run, since one has died or failed."""
    _stopped: set[int] = field(default_factory=set)
    _dying: set[int] = field(default_factory=set)

    def start(self, run: Run) -> None:
        """Forks them."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        token = secrets.token_hex(16)
        self._messages = Messages(reading, token)
        for rank in range(self.size):
            self._running[rank] = _fork(rank, run, writing, token)
        os.close(writing)

    def watch(self) -> None:
        """Returns when all have ended."""
        poll = select.poll()
        poll.register(self._messages.fd, select.POLLIN)
        ends = {os.pidfd_open(pid): rank for rank, pid in self._running.items()}
        for end in ends:
            poll.register(end, select.POLLIN)
        while ends:
            ready = [fd for fd, _ in poll.poll((LOOK_S if self._activity else GLANCE_S) * 1000)]
            if not ready:
                self._end_the_dying()
            if self._messages.fd in ready and not self._pass_on():
                poll.unregister(self._messages.fd)
            for fd in ready:
                if fd in ends:
                    poll.unregister(fd)
                    os.close(fd)
                    self._collect(ends.pop(fd))
            self._stop_the_alone()
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
        if found is None and rank in self._stopped:
            return
        found = found or _crash(rank, status)
        self.outcomes[rank] = found
        if found["status"] != "passed" and self._activity is None:
            self._activity = Activity(time.monotonic())

    def _stop_the_alone(self) -> None:
        if self._activity is None:
            return
        now = time.monotonic()
        if now - self._activity.looked >= LOOK_S:
            self._activity.look(procs.descendants(os.getpid()), now)  # compilers too
        if self._activity.asleep >= ALONE_S:
            collectives.ask(Path(), list(self._running))
            for rank, pid in self._running.items():
                self._stopped.add(rank)
                os.kill(pid, signal.SIGKILL)

    def _end_the_dying(self) -> None:
        """Ends ranks that have had a fatal signal and are there still: where the heap is corrupt,
        torch's own printer of native stacks can be stuck for ever."""
        for rank, pid in self._running.items():
            number = fatal_signal(_faults(rank))
            if number is not None and rank in self._dying:
                os.kill(pid, signal.SIGKILL)
            elif number is not None:
                self._dying.add(rank)


def _fork(rank: int, run: Run, pipe: int, token: str) -> int:
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
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
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
    if "defect" in found:
        raise RuntimeError(f"rank {rank}: {found['defect']}")
    return found


def _crash(rank: int, status: int) -> Data:
    number = os.waitstatus_to_exitcode(status)
    faults = _faults(rank)
    if number == -signal.SIGKILL:
        number = -(fatal_signal(faults) or signal.SIGKILL)
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


# --- the outcome of all


def _combined(outcomes: Mapping[int, Data], size: int, layer: str) -> Data:
    """Rank 0's outcome, with the failure of the rank that was not merely left alone."""
    extra = {rank: _taken_out(one) for rank, one in outcomes.items()}
    speaks = outcomes.get(0) or next(iter(outcomes.values()))
    if broken := [one for one in outcomes.values() if one["status"] == "not_run"]:
        return broken[0]
    failed = {rank: one["failure"] for rank, one in sorted(outcomes.items()) if one["failure"]}
    reasons = [one["rejection"] for one in outcomes.values() if one["status"] == "rejected"]
    own = [rank for rank, found in failed.items() if not _lost_its_peers(found)]
    if reasons and not own:
        return speaks | {"status": "rejected", "rejection": reasons[0], "failure": None}
    if not failed:
        found = _parted(outcomes, layer, extra) or _disagreement(extra)
        return speaks if found is None else speaks | {"status": "failed", "failure": found}
    crashed = [rank for rank in own if failed[rank]["kind"] == "crash"]
    rank = (crashed or own or list(failed))[0]
    found = failed[rank]
    others = f"; failed: {collectives.ranks_said(list(failed))}" if len(failed) > 1 else ""
    found["evidence"] |= {"rank": f"rank {rank} of {size}{others}"} | _together(size)
    return speaks | {"status": "failed", "failure": found, "rejection": None}


def _taken_out(one: Data) -> Data:
    """What of a rank's outcome is for us alone."""
    return {name: one.pop(name, None) for name in ("compiled since", "digests")}


def _lost_its_peers(found: Data) -> bool:
    return bool(found["raised"] and _LOST_PEERS.search(found["raised"]["message"]))


def _together(size: int) -> dict[str, str]:
    """Evidence of a failure: where the ranks parted before it, if they did, and what each waited
    in."""
    records = collectives.read(Path(), range(size))
    lines = [f"rank {rank} {said}" for rank, said in collectives.waiting(records).items()]
    parting = collectives.divergence(records, ended=False)
    return {"collectives": "\n".join([*([str(parting)] if parting else []), *lines])}


def _parted(outcomes: Mapping[int, Data], layer: str, extra: Mapping[int, Data]) -> Data | None:
    """The failure of ranks that have all passed, and have not done the same together."""
    found = collectives.divergence(collectives.read(Path(), outcomes), ended=True)
    if found is None:
        return None
    since = min((one["compiled since"] or found.since_ns + 1 for one in extra.values()), default=0)
    return failure(
        "metadata_mismatch",
        "check",
        layer="eager" if found.since_ns < since else layer,
        oracle="collectives",
        diffs=[diff("collectives", "sequence", found.expected, found.actual, call=0)],
        evidence={"collectives": str(found), "rank": collectives.ranks_said(found.ranks)},
    )


def _disagreement(extra: Mapping[int, Data]) -> Data | None:
    """The failure of ranks that have all passed, of which some have another value of a result that
    all have whole. Each has judged its own against the reference, so this is about bits."""
    texts = {rank: one["digests"] or [] for rank, one in extra.items()}
    for here in zip(*texts.values(), strict=False):
        layer, call, output, _ = here[0]
        ways: dict[str, list[int]] = {}
        for rank, one in zip(texts, here, strict=True):
            ways.setdefault(json.dumps(one), []).append(rank)
        if len(ways) > 1:
            _, *fewer = sorted(ways.values(), key=len, reverse=True)
            odd = collectives.ranks_said(sorted(rank for ranks in fewer for rank in ranks))
            found = diff(output, "replicas", "the same on all ranks", f"not on {odd}", call=call)
            return failure(
                "metadata_mismatch",
                "check",
                layer=layer,
                oracle="replicas",
                diffs=[found],
                evidence={"rank": odd},
            )
    return None
