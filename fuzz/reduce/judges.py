"""Judges: whether the run of a program failed as another run did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attnfuzz.corpus.signature import key_without_stack, parted, signature
from attnfuzz.fuzz.reduce.seen import matches, seen
from attnfuzz.fuzz.reduce.wording import reworded
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer, Outcome
from attnfuzz.generators.model.program import Program

Judge = Callable[[Program, Outcome], bool]
"""Whether a run of a program, which had that outcome, failed as is looked for: the
interestingness test of a search."""

FUSED = "inductor.fuse_attention"
"""The feature of a program in which Inductor found attention by hand to fuse."""


def fails_alike(key: str, like: Program | None = None, kind: FailureKind | None = None) -> Judge:
    """A judge that says whether a run failed with the strong key `key`, and as `kind` where it is
    given: what dynamo cannot trace has one key, whether it breaks the graph or raises.

    With `like`, the program that the key is of, results that are wrong in the same way are alike
    whatever kernel gave them, by whatever method ranks shared it: what is wrong in checkpointing
    is so for all kernels, what is wrong in a collective for all methods that use it, and each is
    minimized to the simplest. So are ranks that take part in different collectives, and crashes of
    ranks that share one attention.
    """

    def judge(program: Program, outcome: Outcome) -> bool:
        failure = outcome.failure
        if failure is None or kind not in (None, failure.kind):
            return False
        differs = failure.raised is None and bool(failure.diffs)
        of_rank = failure.kind is FailureKind.CRASH and method_of(program) is not None
        if like is not None and (differs or parted(failure) or of_rank):
            program = replace(program, kernel=like.kernel, mesh=like.mesh)
        return signature(failure, program).strong == key

    return judge


def fails_again(original: Program, first: Outcome) -> Judge:
    """Says whether a run failed as `original` did, whose outcome was `first`, in the way of
    `Seen`."""
    expected = seen(first, original)
    return lambda program, outcome: (
        outcome.failure is not None and matches(seen(outcome, program), expected)
    )


def fails_in_any_words(first: Outcome) -> Judge:
    """Says whether a run failed as that of the same program with the outcome `first`, in the words
    of another release of torch."""
    then = first.failure
    assert then is not None
    return lambda program, outcome: (
        outcome.failure is not None and reworded(then, outcome.failure) is not None
    )


def _but_for_out(outcome: Outcome) -> Outcome:
    """The outcome had nobody compared `out`."""
    if outcome.failure is None:
        return outcome
    others = tuple(diff for diff in outcome.failure.diffs if diff.output != "out")
    return replace(outcome, failure=replace(outcome.failure, diffs=others))


def as_wrong_numbers(program: Program, failure: Failure) -> Failure | None:
    """The failure as wrong numbers, where it may show as such in another program: where what is
    beside a tensor is NaN, and is read; and where ranks exchange something wrong, others disagree
    by less than an error budget, or get an infinity. None where it may not."""
    of_ranks = method_of(program) is not None
    apart = bool(failure.diffs) and all(diff.what == "replicas" for diff in failure.diffs)
    told = of_ranks and (apart or failure.kind is FailureKind.NONFINITE)
    if not told and not shows_what_is_beside(program, failure):
        return None
    diffs = tuple(replace(diff, what="value") for diff in failure.diffs)
    return replace(failure, kind=FailureKind.WRONG_RESULT, diffs=diffs)


def shows_what_is_beside(program: Program, failure: Failure) -> bool:
    """Whether a result is not finite where NaN lies beside a tensor, or in a part of a cache that
    is not written, and so may have been read."""
    return failure.kind is FailureKind.NONFINITE and plugin_of(program).has_unread_nan(program)


def fails_wherever(original: Program, first: Outcome, kind: FailureKind | None = None) -> Judge:
    """Says whether a run failed as that of `original`, whose outcome was `first`, with its kernel
    or another.

    What `torch.func.grad` hides, a result that is wrong itself, is what its gradients are wrong by;
    a log-sum-exp that is wrong alone may be so as its budget is narrower than the result's, which
    shows what ranks exchange wrongly in other dtypes and methods; where Inductor fused attention by
    hand into SDPA, SDPA is what ran; and a crash that has no stack may show one in a simpler
    program.
    """
    failure = first.failure
    assert failure is not None
    strong = signature(failure, original).strong
    alike = fails_alike(strong, original, kind)
    if key_without_stack(failure, original) == strong:
        return lambda program, outcome: (
            (outcome.failure is not None and key_without_stack(outcome.failure, program) == strong)
            or alike(program, outcome)
        )
    if not failure.diffs:
        return alike
    if plugin_of(original).recognised_as_sdpa and FUSED in first.features:
        in_eager = replace(failure, layer=Layer.EAGER)
        key = signature(in_eager, replace(original, kernel=Sdpa())).strong
        itself = fails_alike(key, kind=kind)
        return lambda program, outcome: itself(program, outcome) or alike(program, outcome)
    of_result = replace(failure, diffs=tuple(replace(d, output="out") for d in failure.diffs))
    in_result = fails_alike(signature(of_result, original).strong, original)
    exchanged = method_of(original) is not None
    outputs = {diff.output for diff in failure.diffs if diff.what != "replicas"}
    if outputs == {"lse"} or (exchanged and "lse" in outputs and "out" not in outputs):
        return lambda program, outcome: (
            alike(program, _but_for_out(outcome)) or (exchanged and in_result(program, outcome))
        )
    in_numbers = as_wrong_numbers(original, failure)
    if in_numbers is not None:
        as_wrong = fails_alike(signature(in_numbers, original).strong, original)
        return lambda program, outcome: alike(program, outcome) or as_wrong(program, outcome)
    if original.transform != "grad":
        return alike

    def judge(program: Program, outcome: Outcome) -> bool:
        shows = program.transform == "none" and in_result(program, outcome)
        return shows or alike(program, outcome)

    return judge
