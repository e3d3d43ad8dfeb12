"""The growth oracle: compiling must not take time out of all proportion to the program.

A program that repeats a step in its score_mod, and took long, is compiled with one and with two
steps fewer as well. Where each step more takes `TOO_MUCH` times as long, the compiler's time is no
polynomial of small degree in the program's size. CPU seconds of the whole run are compared, what
does not grow included. Costs two or three more runs, of programs that took `LONG_S` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from generators.growth import LEAST_STEPS, TOO_MUCH, most_steps, with_steps
from generators.outcome import Diff, Failure, FailureKind, Layer, Outcome, Phase
from generators.program import Program

LONG_S = 15.0
Run = Callable[[Program], Outcome]


def may_grow(program: Program, outcome: Outcome) -> bool:
    """Whether `outcome` of `program` is worth the runs."""
    return (
        outcome.status == "passed"
        and program.compile is not None
        and most_steps(program.score_mod) >= LEAST_STEPS
        and outcome.cost.cpu_s >= LONG_S
    )


def judged(program: Program, outcome: Outcome, run: Run) -> Outcome:
    """`outcome`, or the failure that runs of smaller programs show it to be."""
    smaller = [run(with_steps(program, fewer)) for fewer in (2, 1)]
    if any(one.status != "passed" for one in smaller):
        return outcome
    seconds = [one.cost.cpu_s for one in (*smaller, outcome)]
    cost = replace(outcome.cost, cpu_s=sum(seconds))
    if seconds[1] < TOO_MUCH * seconds[0] or seconds[2] < TOO_MUCH * seconds[1]:
        return replace(outcome, cost=cost)
    assert program.compile is not None
    traced = replace(program, compile=replace(program.compile, backend="aot_eager", options={}))
    early = run(traced).cost.cpu_s > seconds[2] / 2
    most = most_steps(program.score_mod)
    told = {most - 2 + i: f"{spent:.1f} s" for i, spent in enumerate(seconds)}
    failure = Failure(
        kind=FailureKind.COMPILE_TIME,
        phase=Phase.COMPILE,
        layer=Layer.AOT_EAGER if early else Layer.INDUCTOR,
        oracle="growth",
        diffs=(
            Diff(
                output="score_mod",
                what="compile time",
                expected=f"less than {TOO_MUCH:g} times as long for {most} steps as for {most - 1}",
                actual=", ".join(f"{spent} for {steps}" for steps, spent in told.items()),
            ),
        ),
    )
    return replace(outcome, status="failed", failure=failure, cost=cost)
