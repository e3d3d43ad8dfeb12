"""The sandbox: one program at a time in a session of its own, under `sandbox.watchdog`."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from attnfuzz.actors.sandbox import blame, collectives, together, verdict
from attnfuzz.actors.sandbox.attempt import Attempt
from attnfuzz.actors.sandbox.cpus import enough
from attnfuzz.actors.sandbox.files import remove_tree
from attnfuzz.actors.sandbox.following import FollowingSupervisor, ended, may_run, patient
from attnfuzz.actors.sandbox.fork_server import ForkServer, SandboxError, ZygoteDied, headers_folder
from attnfuzz.actors.sandbox.headers import drop_headers_since
from attnfuzz.actors.sandbox.job import Job, Limits
from attnfuzz.actors.sandbox.leading import LeadingSupervisor, spread_over
from attnfuzz.actors.sandbox.messages import Messages
from attnfuzz.actors.sandbox.parts import HostLost, Link, PartEnd, Spread
from attnfuzz.actors.sandbox.supervisor import Supervisor
from attnfuzz.actors.sandbox.watchdog import ASLEEP, PATIENCE
from attnfuzz.corpus.signature import parted
from attnfuzz.generators.model.codec import outcome_from_data
from attnfuzz.generators.model.outcome import DEADLINE, WAITING, Cost, FailureKind, Outcome

SPACE_S = 120.0  # another program that fills the disk has its deadlines
COMPILES = re.compile(r"compile|flex", re.IGNORECASE)
"""In programs that compile; systems compile flex_attention by themselves."""

FREE_BYTES = 512 << 20  # a program needs room for its caches; less would look like its failure

__all__ = ["Sandbox", "SandboxError"]


class Sandbox:
    """Runs sources one after the other, each in a child forked from a zygote.

    `toolchain` is a Python interpreter with torch; `scratch` a folder for temporary files that the
    caller removes in the end (see `sandbox.scratch`); `preload` Python files that are executed in
    the child before the program; `target` says for what programs are compiled; `cpus` are its own:
    a program of no more processes than they are runs on them only; with `spread` the ranks of
    programs are on several nodes. `environment` says what it runs on. Starting costs seconds, and a
    sandbox is used by one thread at a time.
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
        spread: Spread | None = None,
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
        self._cpus, self._spread = tuple(cpus), spread
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
        `native` its evidence has native stacks, which cost some CPU seconds a process. Ranks that
        wait for one another for ever, by their records, need no second try.

        A crash of one process whose native stack was not printed to its end is tried again once:
        without it the crash is told from others by less.

        Raises SandboxError when nothing can run any more, and HostLost when the ranks cannot all
        run, never for what a program does.
        """
        outcome = verdict.of_setup(self._confirmed(source, job, confirm_hang, native))
        if job.ranks == 1 and verdict.is_half_told(outcome):
            outcome = verdict.told_twice(outcome, self._attempt(source, job, native=False))
        return blame.found(outcome, job, lambda other: self._attempt(source, other, native=False))

    def _confirmed(self, source: str, job: Job, confirm_hang: bool, native: bool) -> Outcome:
        outcome = self._attempt(source, job, native=False)
        if not confirm_hang or not _is_hang(outcome) or _is_deadlock(outcome):
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

    def run_part(self, source: str, job: Job, link: Link) -> PartEnd:
        """Runs the job's part of `source` as the leader at the other end of `link` orders. Raises
        SandboxError when nothing can run any more."""
        job = replace(job, deadlines=patient(job.deadlines))
        with self._made_ready(source, job, native=False) as attempt:
            if not may_run(link):
                return PartEnd()
            died = self._watch(attempt, partial(FollowingSupervisor, limits=self.limits, link=link))
            ending = self._ending(attempt)
            return ended(attempt, self._judge(attempt, ending, died), ending)

    # --- one attempt

    def _attempt(self, source: str, job: Job, *, native: bool) -> Outcome:
        if self._spread is None or job.ranks == 1:
            with self._made_ready(source, job, native=native) as attempt:
                died = self._watch(attempt, partial(Supervisor, limits=self.limits))
                return self._outcome(attempt, died)
        with (
            spread_over(self._spread, source, job, self.toolchain) as (mine, others),
            self._made_ready(source, mine, native=native) as attempt,
        ):
            others.prepared()
            died = self._watch(
                attempt, partial(LeadingSupervisor, limits=self.limits, others=others)
            )
            attempt.elsewhere = others.end()
            return verdict.of_nodes(self._outcome(attempt, died), others.said(self._spread, mine))

    @contextmanager
    def _made_ready(self, source: str, job: Job, *, native: bool) -> Iterator[Attempt]:
        """An attempt whose files are there while the block runs, and a zygote that is warm."""
        self._runs += 1
        if job.only_setup or job.function is not None or COMPILES.search(source):
            self._warm_up()  # a program that compiles unexpectedly only does so more slowly
        own = enough(self._cpus, job.processes_here)
        attempt = Attempt(self._folder / f"r{self._runs}", job, native, own)
        began = time.time()
        try:
            self._write(attempt, source)
            yield attempt
            if not self._folder.exists():  # nothing that is said of the program can be relied on
                raise SandboxError(f"{self._folder}: was removed while a program ran")
        finally:
            remove_tree(attempt.directory)
        if not attempt.told:
            drop_headers_since(self._headers, began)

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

    def _watch(
        self, attempt: Attempt, supervised: Callable[[Attempt, Messages, ForkServer], Supervisor]
    ) -> bool:
        """Runs the child to its end; True when the zygote died with it."""
        token = secrets.token_hex(16)
        request = {"directory": str(attempt.directory), "token": token, "cpus": attempt.cpus}
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        messages = Messages(reading, token)
        supervisor: Supervisor | None = None
        try:
            attempt.pid = self._fork(request, writing)
            attempt.begin()
            supervisor = supervised(attempt, messages, self._zygote())
            supervisor.run()
            supervisor.take()
            if attempt.ended is not None and attempt.ended["left"]:
                attempt.ended["cpu_s"] += self._zygote().sweep()
            self._zygote().forget(attempt.pid)
            return False
        except ZygoteDied:
            if supervisor is not None:
                supervisor.take()
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

    # --- what became of it

    def _outcome(self, attempt: Attempt, died: bool) -> Outcome:
        ending = self._ending(attempt)
        broken = any(part.broken is not None for part in attempt.elsewhere)
        if attempt.ranks_ended and attempt.hang is None and not broken:
            try:
                attempt.result = _of_ranks(attempt)
            except (KeyError, TypeError, AttributeError):  # what the program has made of its files
                attempt.defect = traceback.format_exc()
        return verdict.of_refused(self._judge(attempt, ending, died), attempt.refused)

    def _ending(self, attempt: Attempt) -> verdict.Ending:
        ended = attempt.ended or {"ended": 0, "cpu_s": 0.0, "peak_rss_mb": 0.0}
        phases, parts = attempt.watchdog.seconds, attempt.elsewhere
        cost = Cost(
            wall_s=round(sum(phases.values()), 4),
            cpu_s=round(ended["cpu_s"] + sum(part.cpu_s for part in parts), 4),
            peak_rss_mb=round(max([ended["peak_rss_mb"], *(p.peak_rss_mb for p in parts)]), 1),
            phases={name: round(s, 4) for name, s in phases.items()},
        )
        return verdict.Ending(
            status=ended["ended"],
            phase=attempt.watchdog.phase,
            cost=cost,
            source=attempt.source,
            backend=attempt.job.stops_at,
            setting_up=attempt.setting_up,
            oom_killed=self._oom_killed() or any(part.oom_killed for part in parts),
        )

    def _judge(self, attempt: Attempt, ending: verdict.Ending, died: bool) -> Outcome:
        if attempt.result is not None:
            return self._reported(attempt.result, ending)
        if attempt.defect is not None:
            return verdict.of_defect(ending, attempt.defect)
        number = verdict.fatal_signal(attempt.directory)
        if number is not None:
            return verdict.of_signal(ending, number)
        if attempt.over_budget:
            return verdict.of_stopped(ending)
        if attempt.hang is not None:
            return verdict.of_hang(ending, *attempt.hang)
        if attempt.overfull is not None:
            return verdict.of_overfull(ending, self.limits.disk_mb, attempt.overfull)
        for broken in (part.broken for part in attempt.elsewhere if part.broken is not None):
            return replace(broken, cost=ending.cost)
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


def _of_ranks(attempt: Attempt) -> dict[str, Any]:
    """The outcome of all ranks, wherever they ran. Raises HostLost where they have lost each
    other."""
    job, parts = attempt.job, attempt.elsewhere
    outcomes, records = dict(attempt.ranks), collectives.read(attempt.directory, range(job.ranks))
    for part in parts:
        outcomes |= part.outcomes
        records |= part.records
    if parts and together.lost_each_other(outcomes):
        raise HostLost("the ranks on different nodes have lost each other")
    return together.combined(outcomes, records, job.ranks, job.layer)


def _is_hang(outcome: Outcome) -> bool:
    return outcome.failure is not None and outcome.failure.kind is FailureKind.HANG


def _is_deadlock(outcome: Outcome) -> bool:
    """Whether no deadline could help: simulated ranks wait for one another, or all processes sleep,
    and one is in another collective than the rest."""
    assert outcome.failure is not None and outcome.failure.raised is not None
    message = outcome.failure.raised.message
    return parted(outcome.failure) and message.startswith((WAITING, ASLEEP))


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since it started."""
    with open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
