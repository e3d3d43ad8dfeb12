"""From how a child ended to an outcome, where the child could not tell it itself."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from attnfuzz.actors.sandbox import confine, stacks
from attnfuzz.generators.model.outcome import (
    EAGER_REFUSES,
    Cost,
    Failure,
    FailureKind,
    Frame,
    Layer,
    Outcome,
    Phase,
    Raised,
)

ORACLE = "watchdog"
HARNESS = "harness"
SETTING_UP = "setting up"
MACHINE_DIED = "MachineDied"
DISK_FULL = "DiskQuotaExceeded"
WRITTEN_BYTES = 1 << 20
"""Of what is written on a fatal signal: some kB for each thread."""
_LAST_WORDS = re.compile(
    r"^\s*(terminate called.*|what\(\):.*|\*\*\* .* \*\*\*.*|.*[Aa]ssertion .*failed.*"
    r"|(?:free|malloc\w*|realloc|munmap_chunk)\(\):.*|corrupted .*|double free.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a child ended: its wait `status`, the `phase` it was in, what it used; `backend` is that
    which the program is compiled with, if any; `setting_up` what it was setting up last."""

    status: int
    phase: Phase
    cost: Cost
    source: Path
    backend: str | None = None
    setting_up: str = ""
    oom_killed: bool = False

    @property
    def directory(self) -> Path:
        """The child's working directory, where its source and output are."""
        return self.source.parent

    @property
    def layer(self) -> Layer | None:
        """The layer that was at work. A compiled program has passed its eager run by then; whether
        a lower layer does the same is known once the program is minimized."""
        if self.phase in (Phase.SETUP, Phase.BUILD, Phase.REFERENCE):
            return None
        if self.phase is Phase.EAGER or self.backend is None:
            return Layer.EAGER
        return Layer.DYNAMO if self.backend == "eager" else Layer(self.backend)


def printed(directory: Path) -> dict[str, str]:
    """The end of what the child printed."""
    texts = {
        "stdout": stacks.tail(directory / confine.STDOUT),
        "stderr": stacks.tail(directory / confine.STDERR),
    }
    return {name: text for name, text in texts.items() if text.strip()}


def of_ending(ending: Ending) -> Outcome:
    """A child that ended without a result."""
    if os.WIFSIGNALED(ending.status):
        return of_signal(ending, os.WTERMSIG(ending.status))
    code = os.waitstatus_to_exitcode(ending.status)
    raised = Raised(type="Exit", message=f"exited with code {code} before giving a result")
    return _failed(ending, FailureKind.CRASH, raised)


def fatal_signal(directory: Path) -> int | None:
    """The signal that faulthandler has reported. Torch's own printer of native stacks, which
    comes after it, allocates: where the heap is corrupt it can be stuck for ever."""
    return confine.fatal_signal(stacks.tail(directory / confine.FAULTS))


def is_half_told(outcome: Outcome) -> bool:
    """Whether it is a fatal signal whose native stack torch's printer, which comes after
    faulthandler, has not printed: it can abort, or be stuck."""
    failure = outcome.failure
    return (
        failure is not None
        and failure.kind is FailureKind.CRASH
        and "python_stacks" in failure.evidence
        and "native_stack" not in failure.evidence
    )


def told_twice(crash: Outcome, again: Outcome) -> Outcome:
    """The crash, as its second try tells it where that tells more."""
    cost = replace(again.cost, cpu_s=again.cost.cpu_s + crash.cost.cpu_s)
    crashed = again.failure is not None and again.failure.kind is FailureKind.CRASH
    more = crashed and not is_half_told(again)
    return replace(again if more else crash, cost=cost)


def of_signal(ending: Ending, number: int) -> Outcome:
    """A child that a signal ended."""
    name = confine.signal_name(number)
    texts = printed(ending.directory)
    faults = stacks.tail(ending.directory / confine.FAULTS)
    if faults:
        texts["python_stacks"] = faults
    native = stacks.native_stack(stacks.tail(ending.directory / confine.STDERR, WRITTEN_BYTES))
    if native:
        texts["native_stack"] = stacks.head(native)
    raised = Raised(
        type=f"Signal {name}",
        message=_last_words(texts.get("stderr", "")) or f"killed by {name}",
        frames=stacks.python_frames(faults, ending.source) + stacks.native_frames(native),
    )
    if _out_of_memory(ending, number, texts.get("stderr", "")):
        return _failed(ending, FailureKind.OUT_OF_MEMORY, raised, texts, name)
    return _failed(ending, FailureKind.CRASH, raised, texts, name)


def _out_of_memory(ending: Ending, number: int, stderr: str) -> bool:
    if number == signal.SIGKILL:
        return ending.oom_killed
    return number == signal.SIGABRT and "std::bad_alloc" in stderr


def _last_words(stderr: str) -> str:
    """What C++ or glibc says when it aborts: the message of a crash that has one."""
    return "; ".join(dict.fromkeys(_LAST_WORDS.findall(stderr)))[:2000]


def of_hang(ending: Ending, why: str, evidence: dict[str, str]) -> Outcome:
    """A child that missed a deadline, as `why` says, and was killed."""
    frames: tuple[Frame, ...] = stacks.python_frames(
        evidence.get("python_stacks", ""), ending.source
    )
    raised = Raised(type="Hang", message=why, frames=frames)
    return _failed(ending, FailureKind.HANG, raised, evidence | printed(ending.directory))


def of_stopped(ending: Ending) -> Outcome:
    """A child that was stopped as it used more CPU time than it was given."""
    why = f"it used {ending.cost.cpu_s:.0f} s of CPU up to phase {ending.phase}"
    return Outcome(status="stopped", rejection=why, cost=ending.cost)


def of_overfull(ending: Ending, most_mb: int, evidence: dict[str, str]) -> Outcome:
    """A child that has written more than `most_mb` MiB, and was ended for it."""
    why = f"wrote more than {most_mb} MiB to its folder (limits.disk_mb), and was ended"
    raised = Raised(type=DISK_FULL, message=why)
    return _failed(ending, FailureKind.RUNTIME_ERROR, raised, evidence | printed(ending.directory))


def of_killed_zygote(ending: Ending) -> Outcome:
    """A program that ended the fork server it came from."""
    raised = Raised(type="KilledZygote", message="killed the process that started it")
    kind = FailureKind.OUT_OF_MEMORY if ending.oom_killed else FailureKind.CRASH
    return _failed(ending, kind, raised)


def of_machine(machines: str) -> Outcome:
    """A program that is not run any more: the machines on which it ran died, those named."""
    raised = Raised(type=MACHINE_DIED, message="its machine died, twice, while the program ran")
    failure = Failure(
        kind=FailureKind.CRASH,
        phase=Phase.SETUP,
        raised=raised,
        oracle=ORACLE,
        evidence={"machines": machines},
    )
    return Outcome(status="failed", failure=failure)


def is_of_machine(outcome: Outcome) -> bool:
    """Whether the program is one that is not run any more."""
    failure = outcome.failure
    return (
        failure is not None and failure.raised is not None and (failure.raised.type == MACHINE_DIED)
    )


def of_defect(ending: Ending, text: str) -> Outcome:
    """An exception in the harness itself, reported by the child."""
    last = text.strip().rpartition("\n")[2]
    raised = Raised(type=last.partition(":")[0], message=last)
    outcome = _failed(ending, FailureKind.RUNTIME_ERROR, raised)
    assert outcome.failure is not None
    failure = replace(
        outcome.failure,
        phase=Phase.REFERENCE,
        oracle=HARNESS,
        evidence=outcome.failure.evidence | {"traceback": stacks.head(text)},
    )
    return replace(outcome, failure=failure)


def of_unrendered(text: str) -> Outcome:
    """An exception, with this traceback, before the program could be given to a child."""
    last = text.strip().rpartition("\n")[2]
    failure = Failure(
        kind=FailureKind.RUNTIME_ERROR,
        phase=Phase.BUILD,
        oracle=HARNESS,
        raised=Raised(type=last.partition(":")[0], message=last),
        evidence={"traceback": stacks.head(text)},
    )
    return Outcome(status="failed", failure=failure)


def of_setup(outcome: Outcome) -> Outcome:
    """`outcome`; where it failed before the program was begun, one that says why that is."""
    failure = outcome.failure
    if failure is None or failure.phase is not Phase.SETUP or failure.raised is None:
        return outcome
    why = f"{failure.evidence.get(SETTING_UP, 'setting up')}: {failure.raised.message}"
    return Outcome(status="not_run", rejection=why, cost=outcome.cost)


def of_refused(outcome: Outcome, why: str | None) -> Outcome:
    """`outcome`; where it failed though eager attention is refused, because of `why`, the evidence
    says so."""
    failure = outcome.failure
    if failure is None or why is None:
        return outcome
    evidence = {EAGER_REFUSES: f"refuses this by design: {why}"} | failure.evidence
    return replace(outcome, failure=replace(failure, evidence=evidence))


def of_nodes(outcome: Outcome, texts: dict[str, str]) -> Outcome:
    """`outcome` of a program on several nodes; where it failed, the evidence says `texts` too."""
    failure = outcome.failure
    if failure is None:
        return outcome
    return replace(outcome, failure=replace(failure, evidence=failure.evidence | texts))


def is_defect(outcome: Outcome) -> bool:
    """Whether the fault is ours, not torch's: the harness raised, or a reference did."""
    failure = outcome.failure
    if failure is None:
        return False
    return failure.phase is Phase.REFERENCE or failure.oracle == HARNESS


def _failed(
    ending: Ending,
    kind: FailureKind,
    raised: Raised,
    evidence: dict[str, str] | None = None,
    signal_name: str | None = None,
) -> Outcome:
    evidence = printed(ending.directory) if evidence is None else evidence
    if ending.phase is Phase.SETUP:
        evidence = evidence | {SETTING_UP: ending.setting_up}
    failure = Failure(
        kind=kind,
        phase=ending.phase,
        layer=ending.layer,
        oracle=ORACLE,
        raised=raised,
        signal=signal_name,
        evidence=evidence,
    )
    return Outcome(status="failed", failure=failure, cost=ending.cost)
