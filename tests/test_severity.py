"""How ordinary programs are, and how bad their failures are for a user of torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnfuzz.corpus.severity import BASE, severity
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.model.masks import Causal, SlidingWindow
from attnfuzz.generators.model.ordinariness import ORDINARY, ordinariness
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase, Raised
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Layout,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.scores import Alibi, Score, Truth
from attnfuzz.generators.strategies.shards import generate

BSHD = Input(dtype="bfloat16", layout=Layout(order=(0, 2, 1, 3)))
OF_MODELS = {
    "the default": Program(),
    "grouped, causal, bfloat16, BSHD": Program(
        shape=Shape(batch=2, q_heads=8, kv_heads=2, q_len=129, kv_len=129, head_dim=128),
        kernel=Sdpa(mask_form="is_causal", enable_gqa=True), mask=Causal(),
        q=BSHD, k=BSHD, v=BSHD, training=Training(), compile=Compile(),
    ),
    "decoding": Program(shape=Shape(q_heads=4, kv_heads=4, q_len=1, kv_len=77, head_dim=64)),
    "flex with ALiBi": Program(
        kernel=Flex(), score_mod=Alibi(inner=Score()), compile=Compile(dynamic=True)
    ),
    "window, by hand": Program(kernel=Handwritten(), mask=SlidingWindow(window=4)),
    "a checkpoint": Program(surround=Surround(checkpoint="full"), training=Training()),
}  # fmt: skip
STRANGE: dict[str, tuple[Program, str]] = {
    "zero": (Program(shape=Shape(q_len=0)), "size zero"),
    "a call of nothing": (Program(shape=Shape(batch=0)), "size zero"),
    "head_dim": (Program(shape=Shape(head_dim=13)), "no multiple of 8"),
    "float64": (Program(q=Input(dtype="float64")), "float64"),
    "mixed": (Program(k=Input(dtype="bfloat16")), "different dtypes"),
    "strided": (Program(q=Input(layout=Layout(step=(1, 1, 1, 2)))), "every n-th"),
    "transposed": (Program(q=Input(layout=Layout(order=(0, 1, 3, 2)))), "head_dim not innermost"),
    "expanded": (Program(k=Input(layout=Layout(expand=(2,)))), "expanded"),
    "values": (Program(v=Input(values="inf")), "infinite"),
    "scale": (Program(kernel=Sdpa(scale=-0.25)), "scale of 0 or below"),
    "truth": (Program(kernel=Flex(), score_mod=Truth(mask=Causal())), "truth value"),
    "double": (Program(training=Training(double=True)), "second derivatives"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_MODELS)
def test_what_models_do_is_ordinary(name: str) -> None:
    assert ordinariness(OF_MODELS[name]) == (0, [])


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_uncommon_is_named_and_weighs(name: str) -> None:
    program, word = STRANGE[name]
    score, things = ordinariness(program)
    assert any(word in one.what for one in things)
    assert score == sum(one.weight for one in things) > 0


def test_every_drawn_program_has_a_score_that_its_things_make_up() -> None:
    for program in generate(5, 200):
        score, things = ordinariness(program)
        assert score == sum(one.weight for one in things)
        assert [one.weight for one in things] == sorted((o.weight for o in things), reverse=True)
        assert len({one.what for one in things}) == len(things)
        assert ordinariness(program) == (score, things)


def failed(kind: FailureKind, **rest: Any) -> Failure:
    return Failure(kind=kind, phase=Phase.CHECK, layer=Layer.INDUCTOR, **rest)


def value(error: float) -> Diff:
    return Diff(output="out", what="value", expected="1", actual="2", error=error, budget=1e-6)


WRONG = failed(FailureKind.WRONG_RESULT, diffs=(value(1.0),))
CRASH = failed(FailureKind.CRASH, signal="SIGSEGV")
REFUSAL = Failure(
    kind=FailureKind.RUNTIME_ERROR, phase=Phase.EAGER, layer=Layer.EAGER,
    raised=Raised(type="AssertionError", message="create-block_mask requires a mask_mod function!"),
)  # fmt: skip
STRANGEST = replace(
    STRANGE["zero"][0], v=Input(values="inf"), k=Input(dtype="float64"),
    training=Training(double=True),
)  # fmt: skip


def test_every_kind_has_a_severity() -> None:
    assert set(BASE) == set(FailureKind)


def test_silent_and_ordinary_before_a_strange_crash_before_a_badly_worded_refusal() -> None:
    ordinary = OF_MODELS["grouped, causal, bfloat16, BSHD"]
    scores = [
        severity(WRONG, ordinary).score,
        severity(CRASH, ordinary).score,
        severity(CRASH, STRANGEST).score,
        severity(REFUSAL, ordinary).score,
    ]
    assert scores == sorted(set(scores), reverse=True)
    assert severity(WRONG, STRANGEST).score > severity(REFUSAL, ordinary).score


def test_what_a_compiler_refuses_of_what_eager_computes_is_no_refusal() -> None:
    refused = replace(REFUSAL, kind=FailureKind.COMPILE_ERROR, layer=Layer.INDUCTOR)
    assert severity(refused, Program()).score > severity(REFUSAL, Program()).score


def test_what_default_tolerances_cannot_see_ranks_lower() -> None:
    fine = failed(FailureKind.WRONG_RESULT, diffs=(value(5e-5),))
    assert severity(fine, Program()).score < severity(CRASH, Program()).score
    assert "below default tolerances" in severity(fine, Program()).words


def test_the_words_name_each_uncommon_thing_with_its_weight() -> None:
    told = severity(WRONG, STRANGE["double"][0])
    assert told.told == "8: second derivatives (8)" and told.ordinary == (
        told.strangeness <= ORDINARY
    )
    assert severity(WRONG, Program()).told == "an ordinary program"
