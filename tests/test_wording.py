"""Failures of shipped cases as other releases of torch showed them: which are the same in other
words, and which are not.

`golden/releases/CASE-torch-VERSION.yaml` is what the case did there, recorded once with
`attnfuzz replay`; the case itself was recorded with torch 2.13.0."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest

from attnfuzz.corpus.case import SHIPPED, Case, find_cases, read_case
from attnfuzz.fuzz.reduce.judges import fails_in_any_words
from attnfuzz.fuzz.reduce.seen import matches, seen_failure
from attnfuzz.fuzz.reduce.wording import reworded
from attnfuzz.fuzz.replay.verdict import Recorded, Verdict, replay
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.codec import load_yaml_safely, outcome_from_data
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
    Raised,
)

GOLDEN = Path(__file__).parent / "golden" / "releases"


@cache
def shipped() -> dict[str, Case]:
    return {folder.name: read_case(folder) for folder in find_cases([SHIPPED])}


def package_of(name: str) -> str | None:
    """The package that the case's kernel comes in, None for torch."""
    return plugin_of(shipped()[name].program).package


def elsewhere(name: str) -> tuple[Case, Failure]:
    """A shipped case, and how it failed with the release in the golden file's name."""
    path = GOLDEN / f"{name}.yaml"
    data = load_yaml_safely(path.read_text(), str(path))
    failure = outcome_from_data({"status": "failed", **data}, str(path)).failure
    assert failure is not None
    return shipped()[name.partition("-")[0]], failure


def replayed(case: Case, failure: Failure) -> Verdict:
    recorded = Recorded(program=case.program, failure=case.failure)
    outcome = Outcome(status="failed", failure=failure)
    (result,) = replay([recorded], lambda programs: [outcome for _ in programs])
    return result.verdict


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("8fb3c02c3961-torch-2.15.0", "the same error within ObservedRuntimeError, then Torch"),
        ("601aa0b1f0ba-torch-2.15.0", "of dk, dq, out only dk, dq"),
        ("ca54accd321b-torch-2.11.0", "the same error, explained in other words"),
    ],
)
def test_the_same_failure_in_another_releases_words(name: str, differs: str) -> None:
    case, there = elsewhere(name)
    assert (reworded(case.failure, there) or "").startswith(differs)
    assert replayed(case, there) is Verdict.REWORDED
    assert fails_in_any_words(Outcome(status="failed", failure=case.failure))(
        case.program, Outcome(status="failed", failure=there)
    )


def test_wrappers_that_torch_generates_are_in_no_key() -> None:
    case, there = elsewhere("700c5cd121d4-torch-2.15.0")
    assert any("codegen" in frame.file for frame in there.raised.frames)  # type: ignore[union-attr]
    assert matches(seen_failure(there, case.program), seen_failure(case.failure, case.program))


@pytest.mark.parametrize("name", ["b59e5ad2b7bf-torch-2.12.1", "2a05aa7a3086-torch-2.12.1"])
def test_another_failure_of_the_same_program_is_a_change(name: str) -> None:
    case, there = elsewhere(name)
    assert reworded(case.failure, there) is None
    assert replayed(case, there) is Verdict.CHANGED


def test_no_shipped_failure_that_was_raised_is_another_in_other_words() -> None:
    """They are of different causes, unless they share a bucket, or one is of a system: a case is
    kept for each system in whose code a cause shows."""
    bucket = {folder.name: folder.parent.name for folder in find_cases([SHIPPED])}
    raised = {name: case.failure for name, case in shipped().items() if case.failure.raised}
    assert len(raised) > 10
    alike = {
        (one, other)
        for one, other in permutations(raised, 2)
        if reworded(raised[one], raised[other])
        and bucket[one] != bucket[other]
        and package_of(one) == package_of(other)
    }
    assert not alike


def wrong(*outputs: str, layer: Layer = Layer.INDUCTOR) -> Failure:
    diffs = tuple(Diff(output=one, what="value", expected="1", actual="2") for one in outputs)
    return Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=layer, oracle="numbers", diffs=diffs
    )


def test_other_outputs_or_another_layer_are_another_failure() -> None:
    both = wrong("out", "dq")
    assert reworded(both, wrong("dq"))
    assert reworded(wrong("dq"), both) is None
    assert reworded(both, wrong("dq", "dv")) is None
    assert reworded(both, wrong("dq", layer=Layer.EAGER)) is None
    assert reworded(both, replace(wrong("dq"), kind=FailureKind.NONFINITE)) is None


def raising(message: str, type_: str = "builtins.AssertionError") -> Failure:
    return Failure(
        kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=Layer.INDUCTOR,
        raised=Raised(type=type_, message=message),
    )  # fmt: skip


def test_a_message_that_says_nothing_is_not_enough() -> None:
    silent = raising("")
    assert reworded(silent, silent) is None
    assert reworded(raising("it failed"), raising("it failed", "builtins.ValueError")) is None
    telling = "expected the strides of the mask to be those of the scores"
    quoted = raising(f"got AssertionError('{telling}')", "torch._dynamo.exc.TorchRuntimeError")
    assert reworded(raising(telling), quoted)
    assert reworded(raising("no"), raising("got AssertionError('no')", "a.WrapperError")) is None
    assert reworded(raising(telling), raising(telling, "builtins.ValueError")) is None
    assert reworded(raising(telling), raising("the strides of the scores are wrong")) is None
