"""Refusals by design: clear errors with which torch declines what a program requires.

An exception that matches one of a program's refusals is an outcome `rejected`, not a failure. A
pattern that says too much hides bugs, so each quotes a whole clause of one message, and `needs`
limits it to the programs that require what is declined: "No available kernel" is by design when a
backend was forced, and a bug when torch chose.

Texts are those of torch 2.11 to 2.15.
"""

from __future__ import annotations

from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.kernels.shared_refusals import COMPILE
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.model.program import Program


def for_program(program: Program) -> tuple[Refusal, ...]:
    """The refusals that are by design for `program`, in a fixed order."""
    compiling = COMPILE if program.compile is not None else ()
    method = method_of(program)
    shared = method.refusals if method is not None else ()
    every = (*plugin_of(program).refusals, *compiling, *shared)
    return tuple(refusal for refusal in every if refusal.needs(program))
