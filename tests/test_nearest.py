"""The nearest public threads, and the labels by the maintainers' rubric."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from attnfuzz.corpus.known_issues import KnownIssue
from attnfuzz.corpus.nearest import MOST, nearest
from attnfuzz.fuzz.issue.labels import labels
from attnfuzz.fuzz.report.pages import page
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.outcome import Failure, FailureKind, Frame, Layer, Phase, Raised
from attnfuzz.generators.model.program import Compile, Mesh, Program

FRAME = Frame(file="torch/_inductor/kernel/flex/flex_cpu.py", function="lower_cpu", line=9)
FAILURE = Failure(
    kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=Layer.INDUCTOR,
    raised=Raised(type="KeyError", message="no buffer 12", chain=("KeyError",), frames=(FRAME,)),
)  # fmt: skip
PROGRAM = Program(kernel=Flex(), compile=Compile())
HERE = {"torch": "2.13.0+cpu"}
TODAY = date(2029, 1, 1)
ISSUE = KnownIssue(
    id="x-1", link="https://example.org/1", note="it breaks", kinds=(FailureKind.COMPILE_ERROR,),
    message=r"no buffer \d+", frame="flex_cpu.py:lower_cpu", kernels=("flex",),
    versions=">=2.11,<=2.13", needs_features=frozenset({"kernel.flex"}), expires=date(2030, 1, 1),
)  # fmt: skip
SHIPPED = Path(__file__).resolve().parents[1] / "corpus" / "cases"


def links(*issues: object) -> list[str]:
    found = nearest(FAILURE, PROGRAM, HERE, issues, today=TODAY)  # type: ignore[arg-type]
    return [one.issue.id for one in found]


def test_the_same_comes_first_then_the_same_elsewhere_then_its_words() -> None:
    same = ISSUE.model_copy(update={"id": "same", "link": "https://example.org/a"})
    old = same.model_copy(
        update={"id": "old", "versions": "<2.11", "link": "https://example.org/b"}
    )
    words = same.model_copy(
        update={"id": "words", "kernels": ("sdpa",), "link": "https://example.org/c"}
    )
    assert links(words, old, same) == ["same", "old", "words"]
    found = nearest(FAILURE, PROGRAM, HERE, [old, same], today=TODAY)
    assert [one.same for one in found] == [True, False] and "(<2.11)" in found[1].why


def test_what_shares_the_kernel_alone_is_not_near() -> None:
    far = ISSUE.model_copy(
        update={"message": "another", "frame": None, "needs_features": frozenset({"mesh"})}
    )
    assert links(far) == []


def test_a_thread_is_named_once_and_three_at_most() -> None:
    many = [ISSUE.model_copy(update={"id": f"x-{n}"}) for n in range(5)]
    assert len(links(*many)) == 1
    apart = [one.model_copy(update={"link": f"https://example.org/{one.id}"}) for one in many]
    assert len(links(*apart)) == MOST


def test_what_has_expired_is_near_and_not_the_same() -> None:
    (found,) = nearest(FAILURE, PROGRAM, HERE, [ISSUE], today=date(2031, 1, 1))
    assert not found.same and "the day until" in found.why


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("5023b693", {"oncall: pt2", "oncall: cpu inductor", "module: flex attention",
                      "topic: fuzzer", "triage review"}),
        ("02951761", {"module: sdpa", "topic: fuzzer", "triage review"}),
        ("2fd12c22", {"oncall: pt2", "module: dynamo", "module: flex attention", "topic: fuzzer"}),
        ("043a59ae", {"oncall: pt2", "module: pt2-dispatcher", "topic: fuzzer", "triage review"}),
        ("5f5a4f18", {"module: sdpa", "module: edge cases", "topic: fuzzer", "low priority"}),
        ("f664a6a5", {"module: dtensor", "oncall: distributed", "module: error checking",
                      "topic: fuzzer"}),
    ],
)  # fmt: skip
def test_labels_by_the_rubric(name: str, expected: set[str]) -> None:
    found = page(SHIPPED, name)
    told = labels(found.program, found.failure, found.severity, ablation={})
    assert {label.name for label in told} == expected and all(label.why for label in told)


def test_labels_of_devices_meshes_and_dynamic_shapes() -> None:
    found = page(SHIPPED, "5023b693")
    failure = replace(found.failure, kind=FailureKind.COMPILE_ERROR, layer=Layer.INDUCTOR)
    meshed = replace(found.program, mesh=Mesh())
    told = labels(
        meshed, failure, found.severity, device="cuda", ablation={"dynamic=False": "passes"}
    )
    names = {label.name for label in told}
    assert {"module: inductor", "module: dynamic shapes", "module: dtensor"} <= names
    assert not {"oncall: cpu inductor", "oncall: distributed", "triage review"} & names
