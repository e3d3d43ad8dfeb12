"""The layer to blame for a failure of a program of several ranks.

One process finds it by compiling once more after it has failed. Ranks could not do that in step:
one may have failed alone. Here the whole program is run afresh, with compilers that stop earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attnfuzz.actors.sandbox.job import Job
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer, Outcome

EARLIER = (("eager", Layer.DYNAMO), ("aot_eager", Layer.AOT_EAGER))
"""Backends that stop earlier, with the layer that each adds."""

_NOT_BLAMED = (FailureKind.HANG, FailureKind.CRASH, FailureKind.OUT_OF_MEMORY)
"""Where every further run would cost a deadline, or say nothing: their layer is that at work."""


def found(outcome: Outcome, job: Job, run: Callable[[Job], Outcome]) -> Outcome:
    """`outcome` with the layer to blame, if it is a failure of the compiled program of several
    ranks; its cost is that of all runs. `run` gives the outcome of the same source."""
    failure = outcome.failure
    compile = job.compile
    if failure is None or compile is None or not job.launched or not job.layers:
        return outcome
    if failure.kind in _NOT_BLAMED or failure.layer in (None, Layer.EAGER):
        return outcome
    if compile.via == "export":
        return outcome
    cpu_s = outcome.cost.cpu_s
    layer: Layer | None = failure.layer
    for backend, earlier in EARLIER:
        if backend == compile.backend:
            break
        other = run(replace(job, stopping_at=backend, features=False, budget_s=None))
        cpu_s += other.cost.cpu_s
        if other.failure is not None and alike(failure, other.failure):
            layer = Layer.EXPORT if (compile.via, backend) == ("aoti", "eager") else earlier
            break
    cost = replace(outcome.cost, cpu_s=round(cpu_s, 4))
    return replace(outcome, failure=replace(failure, layer=layer), cost=cost)


def alike(failure: Failure, other: Failure) -> bool:
    """Whether two failures are one: the same kind and exception type, or the same properties of
    the same outputs wrong. As in `child.layers`, which has them as plain data."""
    if failure.kind is not other.kind or other.layer is Layer.EAGER:
        return False
    if failure.raised is not None or other.raised is not None:
        mine, its = failure.raised, other.raised
        return mine is not None and its is not None and mine.type == its.type
    return bool(_differing(failure) & _differing(other))


def _differing(failure: Failure) -> set[tuple[str, str]]:
    return {(diff.output, diff.what) for diff in failure.diffs}
