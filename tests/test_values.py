"""Values that are special, what lies beyond a tensor, and further draws of numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.model.draws import SEEDS, draw_alone
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import (
    EAGER_REFUSES,
    Diff,
    Failure,
    FailureKind,
    Layer,
    Phase,
)
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Layout,
    Program,
    Shape,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates

SHAPE = Shape(batch=2, q_heads=4, kv_heads=4, q_len=48, kv_len=48, head_dim=32)
PADDED = Layout(order=(0, 2, 1, 3), pad=(0, 0, 3, 0), start=(0, 1, 0, 0), unread="nan")
ADDING = Handwritten(masking="add")


def inputs(program: Program, *which: int) -> tuple[Any, ...]:
    """What the rendered program's `inputs` makes."""
    assert problems(program) == []
    names: dict[str, Any] = {}
    exec(compile(source(program), "program", "exec"), names)
    made: tuple[Any, ...] = names["inputs"](*which)
    return made


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("layout", [Layout(), Layout(order=(0, 2, 1, 3)), PADDED])
def test_values_are_what_their_names_say(dtype: Any, layout: Layout) -> None:
    def made(values: Any) -> torch.Tensor:
        q: torch.Tensor = inputs(
            Program(shape=SHAPE, q=Input(dtype=dtype, layout=layout, values=values))
        )[0]
        assert q.dtype == getattr(torch, dtype)
        assert q.shape == (2, 4, 48, 32)
        return q

    nan, inf = made("nan"), made("inf")
    assert 0 < nan.isnan().sum() < nan.numel() / 50
    assert not inf.isnan().any()
    assert 0 < inf.isinf().sum() < inf.numel() / 50
    assert inf.max() == torch.inf
    assert inf.min() == -torch.inf
    assert made("negative").max() <= 0
    assert made("negative").min() < -7
    denormal = made("denormal").abs()
    assert 0 < denormal.max() < torch.finfo(denormal.dtype).smallest_normal


@pytest.mark.parametrize(
    "layout",
    [
        PADDED, replace(PADDED, expand=(0,)), Layout(step=(1, 1, 2, 1), unread="nan"),
        Layout(start=(0, 0, 0, 1), unread="nan"), Layout(order=(3, 2, 1, 0), pad=(1, 0, 0, 1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("trained", [False, True])
def test_nan_lies_in_all_of_the_storage_but_the_tensor(layout: Layout, trained: bool) -> None:
    layout = replace(layout, unread="nan")
    training = Training() if trained else None
    q = inputs(Program(shape=SHAPE, q=Input(layout=layout), training=training))[0]
    plain = replace(layout, unread="values")
    other = inputs(Program(shape=SHAPE, q=Input(layout=plain), training=training))[0]
    assert (q.stride(), q.storage_offset()) == (other.stride(), other.storage_offset())
    assert q.requires_grad == trained
    assert q.is_leaf
    assert q.isfinite().all()
    stored = torch.empty(0).set_(q.untyped_storage())
    read = q.detach()[:1] if layout.expand else q.detach()
    assert stored.numel() == other.untyped_storage().nbytes() // 4
    assert stored.isnan().sum() == stored.numel() - read.numel() > 0


@pytest.mark.parametrize("packed", ["qkv", "kv"])
def test_a_packed_buffer_may_have_heads_that_nobody_reads(packed: Any) -> None:
    spare = Input(layout=Layout(pad=(0, 1, 0, 0), unread="nan"))
    p = Program(shape=SHAPE, packed=packed)
    p = replace(p, q=spare) if packed == "qkv" else replace(p, k=spare)
    made = inputs(p)
    k, v = made[1:3]
    assert k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()
    assert all(t.isfinite().all() for t in made)
    stored = torch.empty(0).set_(k.untyped_storage())
    assert stored.isnan().sum() == 2 * 48 * 32


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (Program(q=Input(layout=Layout(unread="nan"))), "q.layout.unread"),
        (Program(q=Input(values="nan"), mask=Causal(offset=-1)), "q.values"),
        (Program(q=Input(values="inf"), mask=Causal()), "q.values"),
        (Program(k=Input(values="nan"), mask=Causal()), "k.values"),
        (Program(kernel=ADDING, k=Input(values="inf"), mask=Causal()), "k.values"),
        (Program(v=Input(values="inf"), training=Training()), "v.values"),
        (Program(v=Input(values="nan"), transform="grad"), "v.values"),
        (Program(packed="qkv", k=Input(layout=PADDED)), "k.layout"),
        (Program(packed="kv", k=Input(layout=PADDED)), "k.layout.order"),
        (Program(packed="qkv", q=Input(layout=Layout(expand=(0,)))), "q.layout.expand"),
    ],
)  # fmt: skip
def test_what_such_values_do_not_go_with(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_nan_goes_with_a_mask_that_selects() -> None:
    handwritten = Program(kernel=Handwritten(), q=Input(values="nan"), mask=Causal())
    assert problems(handwritten) == []


def test_further_draws_have_other_numbers_in_the_same_shape() -> None:
    p = Program(seed=7, shape=SHAPE, compile=Compile(), draws=2)
    first, second, third = (inputs(p, seed)[0] for seed in (7, 8, 9))
    assert first.shape == second.shape == third.shape
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    assert torch.equal(first, inputs(replace(p, draws=0))[0])
    assert torch.equal(third, inputs(draw_alone(p, 2))[0])
    assert "draws" in features(p)
    assert "SEEDS = [7, 8, 9]" in source(p)
    assert draw_alone(replace(p, seed=SEEDS - 1), 1).seed == 0


def test_draws_follow_the_last_of_several_calls() -> None:
    calls = (Call(batch=1, q_len=4, kv_len=8),)
    text = source(Program(calls=calls, compile=Compile(), draws=2))
    assert "CALLS = [(1, 16, 16), (1, 4, 8), (1, 4, 8), (1, 4, 8)]\nSEEDS = [0, 0, 1, 2]" in text
    assert "def inputs(B, Lq, Lkv, seed):\n    torch.manual_seed(seed)" in text


def failing(call: int, what: str = "value") -> Failure:
    diff = Diff(output="out", what=what, expected="1", actual="2", error=1, budget=0.1, call=call)
    return Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.INDUCTOR, diffs=(diff,)
    )


def test_a_failure_in_one_draw_is_minimized_to_its_seed() -> None:
    p = Program(seed=5, compile=Compile(), draws=4)

    def fails(one: Program) -> bool:
        return one.compile == p.compile and 8 in range(one.seed, one.seed + one.draws + 1)

    steps = 0
    while simpler := next((one for one in candidates(p) if fails(one)), None):
        p, steps = simpler, steps + 1
    assert (p.seed, p.draws) == (8, 0)
    assert steps < 4


def test_a_script_makes_the_draws_up_to_the_failing_one() -> None:
    p = Program(seed=5, compile=Compile(), draws=4)
    text = repro(p, failing(2))
    assert "for seed in [5, 6, 7]:\n    torch.manual_seed(seed)\n" in text
    p = replace(p, calls=(Call(batch=1, q_len=4, kv_len=8),))
    calls = "[(1, 16, 16, 5), (1, 4, 8, 5), (1, 4, 8, 6)]"
    assert f"for B, Lq, Lkv, seed in {calls}:" in repro(p, failing(2))


def test_scripts_of_lost_nan_assert_it_and_pass_where_it_is_kept() -> None:
    p = Program(kernel=Handwritten(), shape=SHAPE, q=Input(values="nan"))
    failure = replace(failing(0, "nan"), layer=Layer.EAGER)
    text = repro(p, failure)
    assert "assert out[expected.isnan()].isnan().all()" in text
    exec(compile(text, "repro", "exec"), {})
    with pytest.raises(AssertionError):
        exec(
            compile(
                text.replace("matmul(probs, v)", "matmul(probs.nan_to_num(), v)"), "repro", "exec"
            ),
            {},
        )


def test_scripts_say_that_eager_refuses() -> None:
    failure = replace(failing(0), evidence={EAGER_REFUSES: "refuses this by design: because"})
    assert "wrong_result at inductor (eager refuses it by design): out" in repro(
        Program(compile=Compile()), failure
    )


def test_programs_with_nan_in_flex_and_sdpa_are_valid_without_a_mask() -> None:
    for kernel in (Flex(), Sdpa()):
        assert problems(Program(kernel=kernel, q=Input(values="nan"))) == []


def test_a_query_that_is_nan_goes_with_a_mask_in_which_it_sees_a_key() -> None:
    assert problems(Program(kernel=Sdpa(), q=Input(values="nan"), mask=Causal())) == []
