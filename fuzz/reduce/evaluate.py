"""Does a script fail by itself? Tells by how its clean processes ended."""

from __future__ import annotations

import signal

from attnfuzz.corpus.signature import OTHER_SIZE, is_of_memory, parted
from attnfuzz.fuzz.pool.tasks import ReproRun
from attnfuzz.generators.model.outcome import Failure, FailureKind

OF_MEMORY = ("SIGSEGV", "SIGABRT", "SIGBUS")
"""Signals in which corrupted memory ends, one in this process and another in the next."""


def depends_on_memory(failure: Failure) -> bool:
    """Whether what happens to lie in memory decides how `failure` shows, or that it does."""
    return failure.kind is FailureKind.NONFINITE or is_of_memory(failure)


def reproduces(run: ReproRun, failure: Failure, by_value: bool = False) -> bool:
    """Whether a script's end is what `failure` looks like from outside. The script of a crash that
    checks `by_value` may also find a wrong result."""
    if by_value and run.status == 1 and "AssertionError" in run.stderr:
        return True
    if parted(failure):
        return run.status is None or (run.status != 0 and OTHER_SIZE in run.stderr)
    if failure.kind is FailureKind.HANG:
        return run.status is None
    if run.status is None:
        return False
    if failure.signal is not None:
        alike = OF_MEMORY if is_of_memory(failure) else (failure.signal,)
        return -run.status in [getattr(signal, name, 0) for name in alike]
    if failure.raised is None:
        return run.status == 1 and "AssertionError" in run.stderr
    return run.status != 0 and failure.raised.type.rpartition(".")[2] in run.stderr
