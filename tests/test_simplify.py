"""Simplification: every candidate is a simpler program, and greedy descent finds what matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.model.codec import (
    dump_program,
    from_data,
    load_program,
    program_id,
    to_data,
)
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.indices import Index, IntConst, IntLookup, Table
from attnfuzz.generators.model.masks import (
    AllTrue,
    And,
    Causal,
    Compare,
    Documents,
    KeyPadding,
    Mask,
    Not,
    Or,
    TableMask,
)
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Layout,
    Marks,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.scores import (
    FloatBinary,
    FloatConst,
    FloatLookup,
    Score,
    ScoreMod,
    Softcap,
    Where,
)
from attnfuzz.generators.model.tree import walk
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates, complexity
from attnfuzz.generators.strategies.programs import programs

MASK = And(
    left=Or(left=Causal(offset=3), right=Documents(count=5, shared_prefix=7)),
    right=Not(
        inner=Compare(
            op="!=",
            left=IntLookup(table=Table(axes=("b", "h", "kv_idx"), dtype="int32", limit=9)),
            right=IntConst(value=4),
        )
    ),
)
SCORE = Where(
    condition=KeyPadding(),
    then=Softcap(inner=Score(), cap=3.7),
    otherwise=FloatBinary(
        op="*",
        left=Score(),
        right=FloatLookup(table=Table(axes=("h", "q_idx"), dtype="float16", init="normal")),
    ),
)
FLEX = Program(
    seed=99,
    kernel=Flex(
        scale=0.37,
        block_mask=BlockMaskSpec(
            block_size=(96, 32), batch=True, heads=True, built_for_extra=(5, 9), spare_batch=2
        ),
        kernel_options={"BLOCK_M": 32, "PRESCALE_QK": True},
        enable_gqa=True,
    ),
    shape=Shape(batch=3, q_heads=6, kv_heads=2, q_len=300, kv_len=173, head_dim=80, v_head_dim=33),
    q=Input(dtype="bfloat16", layout=Layout(order=(2, 0, 1, 3), pad=(0, 1, 2, 3))),
    k=Input(dtype="bfloat16", layout=Layout(step=(1, 1, 2, 1), start=(0, 0, 3, 0))),
    v=Input(dtype="bfloat16", values="huge"),
    mask=MASK,
    score_mod=SCORE,
    compile=Compile(mode="max-autotune", dynamic=True, fullgraph=False),
    calls=(
        Call(batch=3, q_len=64, kv_len=173),
        Call(batch=1, q_len=1, kv_len=33, fresh_mods=False),
        Call(batch=2, q_len=300, kv_len=300),
    ),
    dirty_memory=True,
)
TRAINED = Program(
    kernel=Sdpa(backend="math", scale=0.2, mask_form="float", broadcast=("h",), enable_gqa=True),
    shape=Shape(batch=2, q_heads=12, kv_heads=4, q_len=129, kv_len=129, head_dim=40),
    q=Input(dtype="float16", layout=Layout(order=(0, 2, 1, 3))),
    k=Input(dtype="float16", values="large"),
    v=Input(dtype="float16"),
    mask=KeyPadding(),
    surround=Surround(rope=True, qk_norm=True, checkpoint="selective"),
    compile=Compile(options={"max_autotune": True, "shape_padding": False}),
    training=Training(grad_layout="expanded"),
)
WRITTEN = Program(
    seed=3,
    kernel=Handwritten(product="baddbmm", scaling="both", scale=0.125, masking="add", dropout=True),
    shape=Shape(batch=4, q_heads=3, kv_heads=3, q_len=77, kv_len=78, head_dim=24),
    packed="kv",
    mask=TableMask(
        table=Table(axes=("b", "q_idx", "kv_idx"), dtype="bool", init="coin", unit=(0,))
    ),
    compile=Compile(backend="aot_eager"),
    grad_mode="inference_mode",
)
PROGRAMS = {"flex": FLEX, "trained": TRAINED, "written": WRITTEN}

Fails = Callable[[Program], bool]


def descent(program: Program, fails: Fails) -> tuple[Program, int]:
    """The greedy minimum, and how many programs were tried on the way."""
    refused: set[str] = set()
    tried = 0
    while True:
        for candidate in candidates(program):
            if (key := program_id(candidate)) in refused:
                continue
            tried += 1
            if fails(candidate):
                program = candidate
                break
            refused.add(key)
        else:
            return program, tried


def test_the_samples_are_programs() -> None:
    assert [problems(program) for program in PROGRAMS.values()] == [[], [], []]


def test_the_default_program_is_the_simplest() -> None:
    assert list(candidates(Program())) == []
    assert list(candidates(Program(seed=8))) == [Program()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_of_rich_programs(name: str) -> None:
    check_candidates(PROGRAMS[name])
    assert complexity(Program()) < complexity(PROGRAMS[name])


@settings(max_examples=40)
@given(programs())
def test_candidates_of_any_program(program: Program) -> None:
    check_candidates(program)


def test_a_probability_stays_one() -> None:
    check_candidates(Program(kernel=Sdpa(dropout_p=0.1)))


def check_candidates(program: Program) -> None:
    limit = complexity(program)
    ids = {program_id(program)}
    for candidate in candidates(program):
        assert complexity(candidate) < limit
        assert problems(candidate) == []
        assert from_data(to_data(candidate)) == candidate
        assert (key := program_id(candidate)) not in ids
        ids.add(key)


@settings(max_examples=40)
@given(programs(), st.data())
def test_descent_ends_and_loses_nothing_that_matters(program: Program, data: st.DataObject) -> None:
    present = sorted(features(program))
    assume(present)
    cause = set(data.draw(st.lists(st.sampled_from(present), min_size=1, max_size=2)))
    simplest, tried = descent(program, lambda each: cause <= features(each))
    assert cause <= features(simplest)
    assert load_program(dump_program(simplest)) == simplest
    assert tried < 300
    assert not [each for each in candidates(simplest) if cause <= features(each)]


def has(kind: type) -> Fails:
    return lambda program: any(isinstance(node, kind) for node in walk(program))


def has_a_whole_block(program: Program) -> bool:
    spec = getattr(program.kernel, "block_mask", None)
    return spec is not None and program.shape.q_len >= spec.block_size[0]


LONG = Shape(batch=2, q_len=300, kv_len=300)


@pytest.mark.parametrize(
    ("start", "fails", "expected"),
    [
        (FLEX, lambda p: True, Program()),
        (TRAINED, lambda p: True, Program()),
        (WRITTEN, lambda p: True, Program()),
        (FLEX, lambda p: p.shape.q_len > 100, Program(shape=Shape(q_len=112, kv_len=112))),
        (FLEX, lambda p: p.shape.kv_len % 2 == 1, Program(shape=Shape(q_len=17, kv_len=17))),
        (FLEX, lambda p: p.shape.q_len != p.shape.kv_len, Program(shape=Shape(kv_len=32))),
        (FLEX, lambda p: p.shape.head_dim % 16 == 0 and p.shape.head_dim > 64,
         Program(shape=Shape(head_dim=80))),
        (TRAINED, lambda p: p.shape.q_heads // max(p.shape.kv_heads, 1) == 3,
         Program(shape=Shape(q_heads=3), kernel=Sdpa(enable_gqa=True))),
        (TRAINED, lambda p: p.shape.kv_heads > 1, Program(shape=Shape(q_heads=2, kv_heads=2))),
        (TRAINED, lambda p: {p.q.dtype, p.k.dtype, p.v.dtype} in ({"float16"}, {"bfloat16"}),
         Program(q=Input(dtype="bfloat16"), k=Input(dtype="bfloat16"), v=Input(dtype="bfloat16"))),
        (Program(autocast="bfloat16", v=Input(dtype="bfloat16")),
         lambda p: p.v.dtype == "bfloat16" and (bool(p.autocast) or p.q == p.k == p.v),
         Program(q=Input(dtype="bfloat16"), k=Input(dtype="bfloat16"), v=Input(dtype="bfloat16"))),
        (TRAINED, lambda p: p.training is not None and "k" in p.training.wrt,
         Program(training=Training(wrt=("k",)))),
        (TRAINED, lambda p: p.compile is not None and "shape_padding" in p.compile.options,
         Program(compile=Compile(options={"shape_padding": False}))),
        (WRITTEN, lambda p: getattr(p.kernel, "product", "") == "baddbmm",
         Program(kernel=Handwritten(product="baddbmm"))),
        (WRITTEN, has(Table), Program(mask=TableMask(table=Table(axes=("q_idx",))))),
        (FLEX, lambda p: p.q.layout.order != (0, 1, 2, 3),
         Program(q=Input(layout=Layout(order=(0, 2, 1, 3))))),
        (FLEX, lambda p: p.k.layout.step[2] == 2,
         Program(k=Input(layout=Layout(step=(1, 1, 2, 1))))),
        (FLEX, lambda p: bool(p.calls) and p.calls[-1].q_len > p.shape.q_len,
         Program(calls=(Call(batch=1, q_len=17, kv_len=16),))),
        (FLEX, lambda p: p.shape.batch == 2, Program(shape=Shape(batch=2))),
        (FLEX, lambda p: p.compile is not None and p.compile.dynamic is True,
         Program(compile=Compile(backend="eager", dynamic=True))),
        (FLEX, has(Documents), Program(mask=Documents())),
        (FLEX, has(Softcap), Program(kernel=Flex(), score_mod=Softcap(inner=Score()))),
        (FLEX, lambda p: "BLOCK_M" in getattr(p.kernel, "kernel_options", {}),
         Program(kernel=Flex(kernel_options={"BLOCK_M": 32}))),
        (FLEX, lambda p: getattr(getattr(p.kernel, "block_mask", None), "spare_batch", 0) > 0,
         Program(kernel=Flex(block_mask=BlockMaskSpec(batch=True, spare_batch=1)),
                 mask=AllTrue())),
        (Program(kernel=Flex(block_mask=BlockMaskSpec()), shape=LONG, mask=Causal()),
         has_a_whole_block,
         Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(16, 16))), mask=AllTrue())),
    ],
)  # fmt: skip
def test_descent_leaves_the_cause_alone(start: Program, fails: Fails, expected: Program) -> None:
    simplest, tried = descent(start, fails)
    assert to_data(simplest) == to_data(expected)
    assert tried < 150


def test_a_single_call_takes_the_first_ones_place() -> None:
    simplest, _ = descent(FLEX, lambda p: (p.shape.q_len, p.shape.kv_len) == (1, 33))
    assert simplest == Program(shape=Shape(q_len=1, kv_len=33))


def test_bold_steps_come_first() -> None:
    first = next(iter(candidates(FLEX)))
    assert len(features(first)) < len(features(FLEX)) // 4


def test_what_makes_candidates_cheaper_goes_last() -> None:
    cheaper: dict[str, bool | int | str] = {"fallback_by_default": True}
    options: dict[str, bool | int | str] = {**cheaper, "epilogue_fusion": False}
    p = Program(compile=Compile(options=options, marks=Marks(q_len="dynamic")))
    compiled = [one.compile for one in candidates(p) if one.compile]
    by_inductor = [one for one in compiled if one.backend == "inductor"]
    assert by_inductor[0] == Compile(options=cheaper) and Compile() not in by_inductor
    assert Compile() in [one.compile for one in candidates(replace(p, compile=by_inductor[0]))]


def test_what_depends_on_the_mask_goes_with_it() -> None:
    fits: list[tuple[Mask | None, ScoreMod | None]] = [
        (p.mask, p.score_mod) for p in candidates(FLEX) if isinstance(p.kernel, Sdpa)
    ]
    assert fits and all(score is None for _, score in fits)
    unmasked = [p.kernel for p in candidates(FLEX) if p.mask is None]
    assert Flex in map(type, unmasked)
    assert all(kernel.block_mask is None for kernel in unmasked if isinstance(kernel, Flex))


def test_an_order_of_back_ends_goes_with_them() -> None:
    causal = Program(kernel=Sdpa(mask_form="is_causal"), mask=Causal())
    ordered = Sdpa(backend="math", set_priority=True, mask_form="is_causal")
    assert causal in candidates(replace(causal, kernel=ordered))


def test_numbers_that_may_be_negative_move_towards_zero() -> None:
    start = replace(Program(), mask=Causal(offset=-300))
    simplest, _ = descent(start, lambda p: isinstance(p.mask, Causal) and p.mask.offset <= -37)
    assert simplest.mask == Causal(offset=-37)
    scored = Program(
        kernel=Flex(),
        score_mod=FloatBinary(op="+", left=Score(), right=FloatConst(value=-123.456)),
    )
    simplest, _ = descent(scored, has(FloatBinary))
    assert simplest.score_mod == FloatBinary(op="+", left=Score(), right=Score())


def test_indices_become_plain() -> None:
    start = Program(
        kernel=Sdpa(broadcast=("h",)),
        mask=Compare(op=">=", left=Index(axis="b"), right=IntConst(value=-7)),
    )
    simplest, _ = descent(start, has(Compare))
    assert simplest.mask == Compare(op="<", left=Index(axis="q_idx"), right=Index(axis="q_idx"))
