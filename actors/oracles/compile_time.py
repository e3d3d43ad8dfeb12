"""The growth oracle: compiling must not take time out of all proportion to the program.

A program that repeats a step in its score_mod, and took long, is compiled with `STRIDE` steps less
too, and with twice as many less. It fails where the last steps took `TOO_MUCH` times as long as
those before them, and a good part of the whole: its compile time is then no polynomial of small
degree in its size. Compared are CPU seconds of whole runs, whose constant part cancels. Costs three
or four more runs, of programs that took `LONG_S` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attnfuzz.generators.model.growth import LEAST_STEPS, STRIDE, TOO_MUCH, most_steps, with_steps
from attnfuzz.generators.model.outcome import (
    DEADLINE,
    Diff,
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
)
from attnfuzz.generators.model.program import Program

LONG_S = 12.0
SHARE = 1 / 3
"""Of the whole, what the last steps take at least: much more than one run differs from the next."""

Run = Callable[[Program], Outcome]


def may_grow(program: Program, outcome: Outcome) -> bool:
    """Whether `outcome` of `program` is worth the runs."""
    return (
        outcome.status == "passed"
        and DEADLINE not in outcome.skipped
        and program.compile is not None
        and most_steps(program.score_mod) >= LEAST_STEPS
        and outcome.cost.cpu_s >= LONG_S
    )


def postponed(outcome: Outcome) -> Outcome:
    """What becomes of a new program that may be worth the runs: they are made later."""
    why = "how its compile time grows is to be seen"
    return Outcome(status="stopped", rejection=why, features=outcome.features, cost=outcome.cost)


def judged(program: Program, outcome: Outcome, run: Run) -> Outcome:
    """`outcome`, or the failure that runs of smaller programs show it to be."""
    smaller = [run(with_steps(program, fewer)) for fewer in (2 * STRIDE, STRIDE)]
    again = run(program)  # what is built once for all programs, the first run of it may have built
    if any(one.status != "passed" or DEADLINE in one.skipped for one in (*smaller, again)):
        return outcome
    least, less = (one.cost.cpu_s for one in smaller)
    all_of_it = min(outcome.cost.cpu_s, again.cost.cpu_s)
    spent = sum(one.cost.cpu_s for one in (outcome, *smaller, again))
    outcome = replace(outcome, cost=replace(outcome.cost, cpu_s=spent))
    last, before = all_of_it - less, less - least
    if before <= 0 or last < TOO_MUCH * before or last < SHARE * all_of_it:
        return outcome
    assert program.compile is not None
    traced = replace(program, compile=replace(program.compile, backend="aot_eager", options={}))
    early = run(traced).cost.cpu_s > all_of_it / 2
    most = most_steps(program.score_mod)
    failure = Failure(
        kind=FailureKind.COMPILE_TIME,
        phase=Phase.COMPILE,
        layer=Layer.AOT_EAGER if early else Layer.INDUCTOR,
        oracle="growth",
        diffs=(
            Diff(
                output="score_mod",
                what="compile time",
                expected="in proportion",
                actual=f"{least:.1f}, {less:.1f}, {all_of_it:.1f} s for {most - 2 * STRIDE}, "
                f"{most - STRIDE}, {most} steps",
            ),
        ),
    )
    return replace(outcome, status="failed", failure=failure)
