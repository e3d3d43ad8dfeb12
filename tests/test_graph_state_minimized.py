"""Graphs that decode: what is wrong with a cache is minimized to one form, whatever it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from attnfuzz.fuzz.reduce.judges import fails_wherever
from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.steps.attention import Softmax
from attnfuzz.generators.kernels.graph.steps.state import AttendWritten, Store, StoreInPages
from attnfuzz.generators.kernels.graph.steps.views import Permute
from attnfuzz.generators.kernels.specs import Graph
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.model.program import Program, Shape
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import shard_programs
from tests.support.decoding import decoding, graph_of, stored_as
from tests.support.fake_pool import wrong as wrong_numbers

WITHOUT_EXCHANGE = """\
kernel:
  kind: graph
  steps:
  - {kind: store, of: k, cache: cache_k, to: keys, form: index_copy}
  - {kind: position_mask, like: q, to: mask}
  - {kind: permute, of: q, to: query, dims: [0, 2, 1, 3]}
  - {kind: permute, of: keys, to: key, dims: [0, 2, 1, 3]}
  - {kind: einsum, left: query, right: key, to: scores, equation: 'bqhd,bkhd->bhqk'}
  - {kind: mask_scores, of: scores, mask: mask, to: scores}
  - {kind: softmax, of: scores, to: probs, dim: 3}
  - {kind: einsum, left: probs, right: key, to: out, equation: 'bhqk,bkhd->bqhd'}
  decode: {tokens: 2}
"""
"""The result is `[B, Lq, H, Dv]`, as the last product gives it."""

EXCHANGED = (0, 2, 1, 3)
IN_PAGES = Graph(
    steps=(
        Permute(of="k", to="k", dims=EXCHANGED),
        StoreInPages(of="k", cache="cache_k", to="keys", form="index_copy"),
        Permute(of="keys", to="keys", dims=EXCHANGED),
        AttendWritten(q="q", k="keys", v="keys", to="out"),
    ),
    decode=Decode(slots="pages", cache="blhd", page=2),
)


def simplest(program: Program, fails: Callable[[Program], bool]) -> Program:
    while simpler := next((one for one in candidates(program) if fails(one)), None):
        program = simpler
    return program


def test_what_is_wrong_with_a_cache_leaves_no_attention_by_hand() -> None:
    """Whichever way the attention was written: one cause has one minimized program."""

    def fails(program: Program) -> bool:
        steps = program.kernel.steps if isinstance(program.kernel, Graph) else ()
        return any(isinstance(step, Store) and step.form == "index_copy" for step in steps)

    by_hand = [
        program
        for shard in range(60)
        for program in shard_programs(5, shard, 10, {"graph": 1})
        if fails(program) and any(isinstance(step, Softmax) for step in graph_of(program).steps)
    ][:6]
    left = {simplest(program, fails) for program in by_hand}
    assert len(by_hand) == 6
    assert {tuple(type(step) for step in graph_of(program).steps) for program in left} == {
        (Store, AttendWritten)
    }


def test_a_result_of_another_shape_is_no_reason_to_keep_attention_by_hand() -> None:
    program = load_program(WITHOUT_EXCHANGE)
    assert problems(program) == []
    left = simplest(program, lambda one: "index_copy" in dump_program(one))
    assert [type(step) for step in graph_of(left).steps] == [Store, AttendWritten]


@pytest.mark.parametrize("wrong", ["k", "v"])
def test_one_cache_is_left_of_two_whichever_is_written_wrongly(wrong: str) -> None:
    program = stored_as(decoding(Decode(), masked=True), "index_copy", (wrong,))
    assert problems(program) == []
    left = simplest(program, lambda one: "index_copy" in dump_program(one))
    assert [type(step) for step in graph_of(left).steps] == [Store, AttendWritten]


def test_pages_that_are_written_as_slots_may_be_are_left() -> None:
    """The way to write stays, whatever it is that the pages are for."""
    paged = Program(kernel=IN_PAGES)
    assert problems(paged) == []
    simpler = candidates(paged)
    kept = [
        p.kernel.decode
        for p in simpler
        if isinstance(p.kernel, Graph)
        and any(isinstance(step, Store) and step.form == "index_copy" for step in p.kernel.steps)
    ]
    assert {one.tokens for one in kept if one and one.slots == "in_order"} == {1, 2}


def test_pages_of_several_batches_are_known_by_tokens_in_order() -> None:
    """The last of several indices: of two batches, or of two tokens of one."""
    paged = Program(kernel=IN_PAGES, shape=Shape(batch=2))
    assert problems(paged) == []
    wanted = features(stored_as(decoding(Decode(tokens=2), masked=True), "index_copy"))
    assert any(features(one) == wanted for one in candidates(paged))


def test_nan_of_what_is_not_written_is_wrong_numbers_where_that_is_zero() -> None:
    wrong = wrong_numbers("cache_k")
    assert wrong.failure is not None
    not_finite = replace(wrong, failure=replace(wrong.failure, kind=FailureKind.NONFINITE))
    zeros, nan = decoding(Decode()), decoding(Decode(unwritten="nan"))
    assert fails_wherever(nan, not_finite)(zeros, wrong)
    assert not fails_wherever(zeros, not_finite)(zeros, wrong)
