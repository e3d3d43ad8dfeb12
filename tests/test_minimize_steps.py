"""A refused change is known again by what it changes."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.fuzz.reduce.search import step_between
from attnfuzz.generators.model.program import Call, Compile, Program

BUSY = Program(
    compile=Compile(dynamic=True, mode="max-autotune"),
    calls=(Call(batch=2, q_len=7, kv_len=9),),
)


def test_a_part_of_defaults_is_another_step_than_none() -> None:
    uncompiled, plain = replace(BUSY, compile=None), replace(BUSY, compile=Compile())
    assert step_between(BUSY, uncompiled) != step_between(BUSY, plain)


def test_a_step_in_a_list_stays_the_same_when_others_are_gone() -> None:
    a, b, c = (Call(batch=1, q_len=length, kv_len=length) for length in (7, 7, 9))
    three, two = replace(BUSY, calls=(a, b, c)), replace(BUSY, calls=(b, c))
    without_c, only_b = replace(BUSY, calls=(a, b)), replace(BUSY, calls=(b,))
    assert step_between(three, without_c) == step_between(two, only_b)
    assert step_between(three, two) not in (frozenset(), step_between(three, without_c))
