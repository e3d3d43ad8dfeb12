"""Known issues: what a record matches, and what is wrong with one that is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from attnfuzz.corpus.known_issues import KnownIssue, KnownIssueError, load_known_issues, match
from attnfuzz.generators.kernels.flex.paged import Paged
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Failure, FailureKind, Frame, Layer, Phase, Raised
from attnfuzz.generators.model.program import Compile, Program, Shape
from attnfuzz.generators.model.scores import Truth

FRAME = Frame(file="torch/_inductor/kernel/flex/flex_cpu.py", function="lower_cpu", line=9)
FAILURE = Failure(
    kind=FailureKind.COMPILE_ERROR,
    phase=Phase.COMPILE,
    layer=Layer.INDUCTOR,
    raised=Raised(type="KeyError", message="no buffer 12", chain=("KeyError",), frames=(FRAME,)),
)
PROGRAM = Program(kernel=Flex(), compile=Compile(dynamic=True))
HERE = {"torch": "2.13.0+cpu"}
ISSUE = KnownIssue(
    id="x-1",
    link="https://example.org/1",
    note="it breaks",
    kinds=(FailureKind.COMPILE_ERROR,),
    exception="KeyError",
    message=r"no buffer \d+",
    frame="flex_cpu.py:lower_cpu",
    kernels=("flex",),
    versions=">=2.11,<=2.13",
    targets=("cpu",),
    needs_features=frozenset({"kernel.flex", "compile.dynamic.true"}),
    expires=date(2030, 1, 1),
)
TODAY = date(2029, 1, 1)


def matches(issue: KnownIssue, failure: Failure = FAILURE, **environment: str) -> bool:
    return match(failure, PROGRAM, HERE | environment, [issue], today=TODAY) is issue


def test_a_record_matches_when_all_that_it_says_does() -> None:
    assert matches(ISSUE)
    assert matches(ISSUE, target="cpu")


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": (FailureKind.CRASH,)},
        {"exception": "ValueError"},
        {"message": "no such"},
        {"frame": "scheduler"},
        {"kernels": ("sdpa",)},
        {"versions": "<2.13"},
        {"targets": ("cuda",)},
        {"needs_features": frozenset({"mask.tree"})},
        {"expires": date(2028, 12, 31)},
    ],
)
def test_a_record_does_not_match_when_one_thing_differs(change: dict[str, object]) -> None:
    assert not matches(ISSUE.model_copy(update=change))


def test_what_a_record_does_not_say_does_not_matter() -> None:
    bare = KnownIssue(id="a", link="https://a", note="n", kinds=(FAILURE.kind,), message="buffer")
    assert matches(bare, torch="2.6.0", target="npu")
    assert matches(bare, torch="a build of mine")


def test_a_record_of_an_exception_matches_no_failure_without_one() -> None:
    silent = replace(FAILURE, raised=None)
    assert not matches(ISSUE, silent)
    told = ISSUE.model_copy(update={"exception": None, "frame": None})
    assert matches(told, replace(silent, evidence={"warnings": "no buffer 7"}))


def test_the_first_record_that_matches_is_given_and_none_if_none_does() -> None:
    second = ISSUE.model_copy(update={"id": "x-2"})
    assert match(FAILURE, PROGRAM, HERE, [ISSUE, second], today=TODAY) is ISSUE
    assert match(FAILURE, PROGRAM, HERE, [], today=TODAY) is None


def test_the_shipped_records_are_sound() -> None:
    issues = load_known_issues()
    assert len(issues) >= 10
    assert all(issue.expires is None or issue.expires > date(2025, 1, 1) for issue in issues)


def test_a_mask_passed_as_score_mod_is_known() -> None:
    program = Program(kernel=Flex(), score_mod=Truth(mask=Causal()), compile=Compile())
    assert "score.truth" in features(program)
    told = Raised(
        type="subprocess.CalledProcessError",
        message="C++ compile error: error: cannot convert 'float*' to 'bool*'",
        chain=("torch._inductor.exc.CppCompileError", "subprocess.CalledProcessError"),
    )
    failure = replace(FAILURE, raised=told)
    found = match(failure, program, HERE)
    assert found is not None and found.id == "pytorch-139548"
    assert match(failure, PROGRAM, HERE) is None


GOOD = """
- id: a-1
  link: https://example.org/1
  note: text
  kinds: [crash]
  message: broke
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("crash", "crush", "kinds"),
        ("message: broke", "message: '('", "message: "),
        ("message: broke", "massage: broke", "massage"),
        ("message: broke", "kernels: [flex]", "expected one of exception, message"),
        ("message: broke", "message: broke\n  kernels: [flux]", "expected one of sdpa, flex"),
        ("message: broke", "message: broke\n  versions: newest", "versions"),
        ("message: broke", "message: broke\n  expires: soon", "expires"),
        ("https://", "ftp://", "link"),
        ("- id: a-1", "- name: a-1", "id"),
        ("\n- id", "\nid: 5\nlist:\n- id", "expected a list"),
    ],
)
def test_a_record_that_is_none_is_one_sentence_naming_file_and_key(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    path = tmp_path / "issues.yaml"
    path.write_text(GOOD)
    assert load_known_issues(path)[0].id == "a-1"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(KnownIssueError) as caught:
        load_known_issues(path)
    assert str(caught.value).startswith(f"{path}: ") and told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_records_of_one_id_and_a_missing_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "issues.yaml"
    path.write_text(GOOD + GOOD)
    with pytest.raises(KnownIssueError, match="a-1 stands there twice"):
        load_known_issues(path)
    with pytest.raises(KnownIssueError, match="cannot be read"):
        load_known_issues(tmp_path / "none.yaml")


def test_a_decoding_kernel_without_choices_is_known_and_the_forward_one_is_not() -> None:
    grouped = Shape(q_heads=4, kv_heads=2, q_len=100, kv_len=100)
    program = Program(kernel=Flex(enable_gqa=True), shape=grouped, compile=Compile())
    frame = Frame(
        file="torch/_inductor/kernel/flex/flex_decoding.py",
        function="create_flex_decoding_kernel",
        line=421,
    )
    raised = Raised(type="torch._inductor.exc.NoValidChoicesError", message="No", frames=(frame,))
    decoding = replace(FAILURE, kind=FailureKind.NO_VALID_CHOICES, raised=raised)
    issue = match(decoding, program, HERE | {"target": "virtual-sm90"})
    assert issue is not None and issue.id == "pytorch-185349"
    forward = replace(frame, file="torch/_inductor/kernel/flex/flex_attention.py")
    other = replace(decoding, raised=replace(raised, frames=(forward,)))
    assert match(other, program, HERE | {"target": "virtual-sm90"}) is None


def test_pages_of_other_entries_are_known_and_pages_given_up_are_not() -> None:
    wrong = replace(FAILURE, kind=FailureKind.WRONG_RESULT, layer=Layer.EAGER, raised=None)
    for paged, known in ((Paged(first=1), "attention-gym-189"), (Paged(erased=True), None)):
        spec = BlockMaskSpec(batch=True, paged=paged)
        issue = match(wrong, Program(kernel=Flex(block_mask=spec), mask=Causal()), HERE)
        assert (issue.id if issue else None) == known
