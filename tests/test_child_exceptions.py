"""Exceptions as data, and the kinds they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.child import exceptions, failure_kinds

SOURCE = Path("/x/program.py")


def raised(make: Any) -> BaseException:
    try:
        make()
    except BaseException as error:
        return error
    raise AssertionError("did not raise")


class BackendCompilerFailed(Exception):
    def __init__(self, inner: Exception) -> None:
        super().__init__(f"backend raised {inner}")
        self.inner_exception = inner


class LoweringException(Exception):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


def explicit_cause() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise RuntimeError("outer") from error


def merely_handling() -> None:
    try:
        raise KeyError("looked up and not found")
    except KeyError:
        raise NotImplementedError("the point")  # noqa: B904


def test_the_innermost_cause_is_what_counts() -> None:
    told = exceptions.describe(raised(explicit_cause), SOURCE)
    assert (told["type"], told["chain"]) == ("KeyError", ["RuntimeError", "KeyError"])


def test_what_was_merely_being_handled_is_no_cause() -> None:
    told = exceptions.describe(raised(merely_handling), SOURCE)
    assert (told["type"], told["message"]) == ("NotImplementedError", "the point")


def test_the_compilers_wrappers_are_opened() -> None:
    error = BackendCompilerFailed(BackendCompilerFailed(IndexError("deep")))
    told = exceptions.describe(error, SOURCE)
    assert (told["type"], told["message"], len(told["chain"])) == ("IndexError", "deep", 3)


def test_a_lowering_exception_keeps_its_cause_in_its_text() -> None:
    text = "NoValidChoicesError: No choices to select.\n  target: flex_attention\n  args[0]: x"
    error = BackendCompilerFailed(LoweringException(text))
    told = exceptions.describe(error, SOURCE)
    assert told["type"] == "NoValidChoicesError"
    assert told["message"] == "No choices to select.\n  target: flex_attention"
    kind = failure_kinds.kind_of(error, compiling=True)
    assert kind == "no_valid_choices"


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("a\n\nfrom user code:\n  File x", "a"),
        ('b\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace', "b"),
        (
            "C++ compile error\n\nCommand:\ng++ x\n\nOutput:\n/t/x.cpp:3:1: note: n\n"
            "/t/x.cpp:3:4: error: cannot convert 'a' to 'b'\n/t/x.cpp:9:4: error: more",
            "C++ compile error: error: cannot convert 'a' to 'b'",
        ),
    ],
)  # fmt: skip
def test_messages_lose_what_is_for_a_person(message: str, short: str) -> None:
    assert exceptions.shorten(message) == short


def test_an_exception_without_text_is_told_all_the_same() -> None:
    told = exceptions.describe(Unprintable(), SOURCE)
    assert "ValueError" in told["message"]
    assert "ValueError" in exceptions.stack(Unprintable()) or exceptions.stack(Unprintable())


def test_a_loop_of_causes_ends() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__cause__, second.__cause__ = second, first
    assert len(exceptions.links(first)) == 2


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/x/program.py", "<program>"),
        ("/v/lib/python3.11/site-packages/torch/_ops.py", "torch/_ops.py"),
        ("/usr/lib/python3.12/json/decoder.py", "json/decoder.py"),
        ("/s/inductor/ab/cabcdefghijklmnopqrstuvwxyz.py", "<generated>"),
        ("/plants/fault.py", "fault.py"),
    ],
)
def test_frames_are_named_the_same_on_every_machine(file: str, shown: str) -> None:
    assert exceptions.relative(file, SOURCE) == shown


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("op: got mixed torch.Tensor and DTensor, need to convert"), "type_mixing"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (AssertionError("expected size 4==4, stride 8==48 at dim=1"), "metadata_mismatch"),
        (RuntimeError("Dynamo recompile limit exceeded"), "recompile_limit"),
        (IndexError("x"), "compile_error"),
    ],
)
def test_kinds_of_exceptions(error: Exception, kind: str) -> None:
    assert failure_kinds.kind_of(error, compiling=True) == kind
