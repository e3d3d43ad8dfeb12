"""The sandbox: one program at a time in a session of its own, under `sandbox.watchdog`."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from attnfuzz.actors.sandbox import blame, disk, procs, stacks, verdict
from attnfuzz.actors.sandbox.attempt import Attempt
from attnfuzz.actors.sandbox.cpus import enough
from attnfuzz.actors.sandbox.files import drop_headers_since, remove_tree
from attnfuzz.actors.sandbox.fork_server import ForkServer, SandboxError, ZygoteDied, headers_folder
from attnfuzz.actors.sandbox.job import Job, Limits
from attnfuzz.actors.sandbox.messages import Messages
from attnfuzz.actors.sandbox.watchdog import BLINK_S, GLANCE_S, PATIENCE
from attnfuzz.generators.model.codec import outcome_from_data
from attnfuzz.generators.model.outcome import DEADLINE, Cost, FailureKind, Outcome, Phase

SPACE_S = 120.0  # another program that fills the disk has its deadlines
FREE_BYTES = 512 << 20  # a program needs room for its caches; less would look like its failure

__all__ = ["Sandbox", "SandboxError"]


class Sandbox:
    """Runs sources one after the other, each in a child forked from a zygote.

    `toolchain` is a Python interpreter with torch; `scratch` a folder for temporary files that the
    caller removes in the end (see `sandbox.scratch`); `preload` Python files that are executed in
    the child before the program; `target` says for what programs are compiled; `cpus` are its own:
    a program of no more processes than they are runs on them only. `environment` says
    what it runs on. Starting costs seconds, and a sandbox is used by one thread at a time.
    """

    def __init__(
        self,
        toolchain: str = sys.executable,
        limits: Limits | None = None,
        scratch: Path | str = "/tmp",
        preload: Sequence[str | Path] = (),
        *,
        target: str = "cpu",
        headers: Path | None = None,
        cpus: Sequence[int] = (),
    ) -> None:
        """Raises SandboxError when no program could run here."""
        self.toolchain, self.target = toolchain, target
        self.limits = limits or Limits()
        self.preload = tuple(str(Path(path).resolve()) for path in preload)
        self._headers = headers or headers_folder(Path(scratch))
        self._folder = Path(scratch) / f"s{secrets.token_hex(4)}"
        try:
            self._folder.mkdir(mode=0o700)
        except OSError as error:
            raise SandboxError(f"{scratch}: cannot write there: {error.strerror}") from error
        self._cpus = tuple(cpus)
        self._runs = 0
        self._retired_cpu_s = 0.0
        self._oom_kills = oom_kills()
        self._server: ForkServer | None = None
        try:
            self.environment = self._zygote().environment
        except SandboxError:
            self.close()
            raise

    def run(
        self, source: str, job: Job, *, confirm_hang: bool = True, native: bool = True
    ) -> Outcome:
        """What becomes of `source`. With `confirm_hang` a missed deadline is tried again with
        `PATIENCE` times the deadlines before it is called a hang; that second try decides, and with
        `native` its evidence has native stacks, which cost some CPU seconds a process.

        Raises SandboxError when nothing can run any more, never for what a program does.
        """
        outcome = verdict.of_setup(self._confirmed(source, job, confirm_hang, native))
        return blame.found(outcome, job, lambda other: self._attempt(source, other, native=False))

    def _confirmed(self, source: str, job: Job, confirm_hang: bool, native: bool) -> Outcome:
        outcome = self._attempt(source, job, native=False)
        if not confirm_hang or not _is_hang(outcome):
            return outcome
        patient = replace(job, deadlines=job.deadlines.times(PATIENCE))
        again = self._attempt(source, patient, native=native)
        cost = replace(again.cost, cpu_s=again.cost.cpu_s + outcome.cost.cpu_s)
        if _is_hang(again):
            return replace(again, cost=cost)
        assert outcome.failure is not None and outcome.failure.raised is not None
        note = f"{outcome.failure.raised.message}, but not with {PATIENCE:g} times that"
        return replace(again, cost=cost, skipped=again.skipped | {DEADLINE: note})

    def harness_cpu_s(self) -> float:
        """CPU seconds that zygotes have used to serve, their preloading not counted."""
        return self._retired_cpu_s + (self._server.cpu_s() if self._server else 0.0)

    def processes(self) -> list[int]:
        """What runs below its zygote now: nothing, between two programs."""
        return self._server.below() if self._server else []

    def close(self) -> None:
        """Ends everything it started and removes its files."""
        self._retire()
        remove_tree(self._folder)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- one attempt

    def _attempt(self, source: str, job: Job, *, native: bool) -> Outcome:
        self._runs += 1
        if job.only_setup or job.function is not None or "compile" in source:
            self._warm_up()  # a program that compiles unexpectedly only does so more slowly
        own = enough(self._cpus, max(job.ranks, job.simulated))
        attempt = Attempt(self._folder / f"r{self._runs}", job, native, own)
        began = time.time()
        try:
            self._write(attempt, source)
            died = self._watch(attempt)
            outcome = verdict.of_refused(self._judge(attempt, died), attempt.refused)
        finally:
            remove_tree(attempt.directory)
        if attempt.result is None:
            drop_headers_since(self._headers, began)
        return outcome

    def _warm_up(self) -> None:
        """Has the zygote compile before the first program that does. What that takes is no
        program's cost. Raises SandboxError."""
        for _ in range(2):
            try:
                return self._zygote().warm_up()
            except ZygoteDied:
                self._retire()
            except BaseException:
                self._retire()  # it may still be compiling
                raise
        raise SandboxError(f"{self.toolchain}: its process dies before it can compile")

    def _write(self, attempt: Attempt, source: str) -> None:
        try:
            self._await_space()
            attempt.directory.mkdir()
            attempt.source.write_text(source)
            message = attempt.job.to_message(str(attempt.source), self.preload)
            message["device_memory_mb"] = self.limits.device_memory_mb
            (attempt.directory / "job.json").write_text(json.dumps(message))
        except OSError as error:
            raise SandboxError(f"{self._folder}: cannot write there: {error.strerror}") from error

    def _await_space(self) -> None:
        """Waits until there is room: another worker's program may have filled the disk, and what it
        wrote is removed when it ends. Raises SandboxError when there is none after a while."""
        for folder in (self._folder, self._headers):
            end = time.monotonic() + SPACE_S
            while shutil.disk_usage(folder).free < FREE_BYTES:
                if time.monotonic() >= end:
                    raise SandboxError(f"{folder.parent}: less than 512 MiB are free there")
                time.sleep(1)

    def _watch(self, attempt: Attempt) -> bool:
        """Runs the child to its end; True when the zygote died with it."""
        token = secrets.token_hex(16)
        request = {"directory": str(attempt.directory), "token": token, "cpus": attempt.cpus}
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        messages = Messages(reading, token)
        try:
            attempt.pid = self._fork(request, writing)
            attempt.begin()
            self._until_ended(attempt, messages)
            self._take(attempt, messages)
            if attempt.ended is not None and attempt.ended["left"]:
                attempt.ended["cpu_s"] += self._zygote().sweep()
            self._zygote().forget(attempt.pid)
            return False
        except ZygoteDied:
            self._take(attempt, messages)
            self._retire()
            return True
        except BaseException:
            self._retire()  # and with it whatever still runs
            raise
        finally:
            attempt.watchdog.enter(time.monotonic())
            os.close(reading)

    def _fork(self, request: dict[str, Any], writing: int) -> int:
        """Forks, from a new zygote if the old one turns out to have died since."""
        try:
            try:
                return self._zygote().fork(request, self.limits, writing)
            except ZygoteDied:
                self._retire()
                return self._zygote().fork(request, self.limits, writing)
        except ZygoteDied:
            raise SandboxError(f"{self.toolchain}: its process dies before it can fork") from None
        finally:
            os.close(writing)

    def _until_ended(self, attempt: Attempt, messages: Messages) -> None:
        watchdog = attempt.watchdog
        poll = select.poll()
        poll.register(messages.fd, select.POLLIN)
        poll.register(self._zygote().link, select.POLLIN)
        while attempt.ended is None:
            if self._takes_too_much(attempt):
                continue
            left = watchdog.end - time.monotonic()
            if left <= 0:  # tested before what is ready, or a flood of messages would hold us up
                self._look(attempt)
                if (why := watchdog.overdue(time.monotonic())) is not None:
                    self._hangs(attempt, why)
                    continue
            ready = poll.poll(min(max(left, BLINK_S), GLANCE_S) * 1000 + 1)
            if not ready:
                self._look(attempt)
            if not ready and verdict.fatal_signal(attempt.directory) is not None:
                self._end_now(attempt)
            elif not ready and (why := watchdog.sleeping()) is not None:
                self._hangs(attempt, why)
            elif any(fd != messages.fd for fd, _ in ready):
                attempt.ended = self._zygote().receive(0.0)
            elif ready and not self._take(attempt, messages):
                poll.unregister(messages.fd)

    def _take(self, attempt: Attempt, messages: Messages) -> bool:
        """Takes in what the child has sent; False when nothing more will come."""
        received, more = messages.read()
        for message in received:
            now = time.monotonic()
            if attempt.result or attempt.defect or attempt.hang or attempt.overfull:
                break  # what is sent after a deadline was missed comes too late
            if "setting up" in message:
                attempt.setting_up = message["setting up"]
            elif "refused" in message:
                attempt.refused = message["refused"]
            elif "phase" in message:
                attempt.watchdog.enter(now, Phase(message["phase"]))
            elif "outcome" in message:
                attempt.watchdog.leave(now)
                attempt.result = message["outcome"]
            elif "defect" in message:
                attempt.defect = message["defect"]
        return more

    def _look(self, attempt: Attempt) -> None:
        now = time.monotonic()
        if attempt.watchdog.may_look(now):
            attempt.watchdog.look(self._zygote().below(), now)

    def _takes_too_much(self, attempt: Attempt) -> bool:
        """Looks from time to time at what the program has written and at the CPU time that it has
        used, and ends it where one is too much."""
        if time.monotonic() < attempt.disk_due:
            return False
        session = self._zygote().below()
        budget_s = attempt.job.budget_s
        compiling = attempt.watchdog.phase is Phase.COMPILE and attempt.result is None
        if budget_s is not None and compiling:
            attempt.stopped = procs.cpu_seconds_of_all(session) > budget_s
        if attempt.stopped:
            self._end_now(attempt)
            return True
        found = disk.used(attempt.directory, session)
        attempt.disk_due = time.monotonic() + GLANCE_S
        if found.bytes <= self.limits.disk_mb << 20:
            return False
        if attempt.result is None:
            attempt.overfull = {"files": str(found)} | stacks.of_hang(
                attempt.pid, session, attempt.directory, native=False
            )
        self._end_now(attempt)
        return True

    def _hangs(self, attempt: Attempt, why: str) -> None:
        """A missed deadline: stacks first, then the end of all that runs below the zygote."""
        if attempt.result is None:
            session = self._zygote().below()
            try:
                evidence = stacks.of_hang(
                    attempt.pid, session, attempt.directory, native=attempt.native
                )
                if (kept := attempt.watchdog.kept) >= 1.0:
                    evidence["kept from the CPUs"] = f"for {kept:.0f} s of that"
            except Exception as error:  # whatever is in its way, the program is ended
                evidence = {"stacks": f"not to be had: {error!r}"}
            attempt.hang = (why, evidence)
        self._end_now(attempt)

    def _end_now(self, attempt: Attempt) -> None:
        zygote = self._zygote()
        zygote.kill_below()
        attempt.ended = zygote.receive(3.0)
        if attempt.ended is None:  # stopped by the program, say
            raise ZygoteDied

    # --- what became of it

    def _judge(self, attempt: Attempt, died: bool) -> Outcome:
        ended = attempt.ended or {"ended": 0, "cpu_s": 0.0, "peak_rss_mb": 0.0}
        phases = attempt.watchdog.seconds
        cost = Cost(
            wall_s=round(sum(phases.values()), 4),
            cpu_s=round(ended["cpu_s"], 4),
            peak_rss_mb=round(ended["peak_rss_mb"], 1),
            phases={name: round(s, 4) for name, s in phases.items()},
        )
        ending = verdict.Ending(
            status=ended["ended"],
            phase=attempt.watchdog.phase,
            cost=cost,
            source=attempt.source,
            backend=attempt.job.stops_at,
            setting_up=attempt.setting_up,
            oom_killed=self._oom_killed(),
        )
        if attempt.result is not None:
            return self._reported(attempt.result, ending)
        if attempt.defect is not None:
            return verdict.of_defect(ending, attempt.defect)
        number = verdict.fatal_signal(attempt.directory)
        if number is not None:
            return verdict.of_signal(ending, number)
        if attempt.stopped:
            return verdict.of_stopped(ending)
        if attempt.hang is not None:
            return verdict.of_hang(ending, *attempt.hang)
        if attempt.overfull is not None:
            return verdict.of_overfull(ending, self.limits.disk_mb, attempt.overfull)
        if died:
            return verdict.of_killed_zygote(ending)
        return verdict.of_ending(ending)

    def _reported(self, result: dict[str, Any], ending: verdict.Ending) -> Outcome:
        """The outcome that the child gave, with its cost and, if it failed, what was printed."""
        try:
            outcome = outcome_from_data(result)
        except ValueError as error:
            return verdict.of_defect(ending, f"the child's outcome is malformed: {error}")
        phases = ending.cost.phases | outcome.cost.phases
        outcome = replace(outcome, cost=replace(ending.cost, phases=phases))
        if outcome.failure is None:
            return outcome
        evidence = verdict.printed(ending.directory) | outcome.failure.evidence
        failure = replace(outcome.failure, evidence=evidence)
        if failure.signal == "SIGKILL" and ending.oom_killed:  # of another rank
            failure = replace(failure, kind=FailureKind.OUT_OF_MEMORY)
        return replace(outcome, failure=failure)

    def _oom_killed(self) -> bool:
        """Whether the kernel has killed for memory since the last call."""
        before, self._oom_kills = self._oom_kills, oom_kills()
        return self._oom_kills > before

    # --- the zygote

    def _zygote(self) -> ForkServer:
        if self._server is None:
            self._server = ForkServer(self.toolchain, self._folder, self._headers, self.target)
        return self._server

    def _retire(self) -> None:
        if self._server is not None:
            self._retired_cpu_s += self._server.cpu_s()
            self._server.close()
            self._server = None


def _is_hang(outcome: Outcome) -> bool:
    return outcome.failure is not None and outcome.failure.kind is FailureKind.HANG


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since it started."""
    with open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
