"""Each rule of validity, broken on its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Function, Handwritten, Sdpa
from attnfuzz.generators.model.indices import Index, IntBinary, IntConst, IntLookup, Table
from attnfuzz.generators.model.masks import (  # fmt: skip
    AllTrue,
    And,
    BlockMap,
    Causal,
    Compare,
    Documents,
    KeyPadding,
    Mask,
    Not,
    PrefixLM,
    Single,
    SlidingWindow,
    TableMask,
)
from attnfuzz.generators.model.program import (  # fmt: skip
    Call,
    Compile,
    Input,
    Layout,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.scores import (  # fmt: skip
    FloatBinary,
    FloatCall,
    FloatConst,
    FloatLookup,
    FromIndex,
    Score,
    ScoreMod,
    Softcap,
    Truth,
    Where,
)
from attnfuzz.generators.model.validity import mask_axes, problems, score_axes

Q, KV = Index(axis="q_idx"), Index(axis="kv_idx")
FLEX = Flex(block_mask=BlockMaskSpec())
TRUTH = Truth(mask=Causal())


def flex(score_mod: ScoreMod) -> Program:
    return Program(kernel=Flex(), score_mod=score_mod)


def masked(mask: Mask) -> Program:
    spec = BlockMaskSpec(batch=True, heads=True)
    return Program(kernel=Flex(block_mask=spec), mask=mask)


def packed(which: Any, **changes: Any) -> Program:
    return Program(packed=which, **changes)


def handwritten(**fields: Any) -> Program:
    return Program(kernel=Handwritten(**fields))


BSHD = Layout(order=(0, 2, 1, 3))
BF16 = Input(dtype="bfloat16")
NAN_KEYS = Input(values="nan_at_masked")
PER_BATCH = PrefixLM(prefix=4, per_batch=True)
PROJECTED = Surround(projections=True)

BROKEN: list[tuple[str, Program]] = [
    ("shape.q_heads", Program(shape=Shape(q_heads=3, kv_heads=2))),
    ("kernel.enable_gqa", Program(shape=Shape(q_heads=4, kv_heads=2))),
    ("q.layout.order", Program(q=Input(layout=Layout(order=(0, 1, 1, 3))))),
    ("k.layout.expand", Program(k=Input(layout=Layout(expand=(0, 0))))),
    ("v.layout.expand", Program(v=Input(layout=Layout(expand=(1,), pad=(0, 2, 0, 0))))),
    ("v.dtype", packed("kv", v=BF16)),
    ("k.dtype", packed("qkv", q=BF16)),
    ("v.values", packed("kv", v=Input(values="ones"))),
    ("k.layout.order", packed("kv", k=Input(layout=BSHD))),
    ("q.layout.expand", packed("qkv", q=Input(layout=Layout(expand=(0,))))),
    ("k.layout", packed("qkv", k=Input(layout=Layout(pad=(0, 0, 1, 0))))),
    ("shape.v_head_dim", packed("kv", shape=Shape(v_head_dim=8))),
    ("shape.kv_len", packed("qkv", shape=Shape(q_len=8))),
    ("calls[0].kv_len", packed("qkv", calls=(Call(batch=1, q_len=4, kv_len=5),))),
    ("q.values", replace(masked(Causal()), q=NAN_KEYS)),
    ("v.values", replace(masked(Causal()), v=NAN_KEYS)),
    ("k.values", Program(mask=Causal(), k=NAN_KEYS)),
    ("k.values", Program(kernel=Handwritten(masking="add"), mask=Causal(), k=NAN_KEYS)),
    ("k.values", Program(kernel=Handwritten(), k=NAN_KEYS)),
    ("k.values", Program(kernel=Handwritten(), mask=Causal(), k=NAN_KEYS, training=Training())),
    ("surround.rope", Program(shape=Shape(head_dim=7), surround=Surround(rope=True))),
    ("surround.rope_interleaved", Program(surround=Surround(rope_interleaved=True))),
    (
        "surround.epilogue",
        Program(shape=Shape(v_head_dim=8), surround=Surround(epilogue="residual")),
    ),
    (
        "surround.epilogue",
        Program(kernel=Handwritten(out_layout="merged"), surround=Surround(epilogue="scaled")),
    ),
    ("packed", packed("kv", surround=PROJECTED)),
    ("q.layout", Program(q=Input(layout=BSHD), surround=PROJECTED)),
    ("k.dtype", Program(k=BF16, surround=PROJECTED)),
    ("transform", Program(transform="vmap", surround=PROJECTED)),
    ("score_mod", Program(score_mod=Score())),
    ("score_mod", replace(handwritten(), score_mod=Score())),
    ("kernel.mask_form", Program(kernel=Sdpa(mask_form="is_causal"))),
    ("kernel.mask_form", Program(kernel=Sdpa(mask_form="is_causal"), mask=Causal(offset=1))),
    ("kernel.mask_requires_grad", Program(kernel=Sdpa(mask_requires_grad=True), mask=Causal())),
    ("kernel.broadcast", Program(kernel=Sdpa(broadcast=("b", "b")), mask=Causal())),
    ("kernel.broadcast", Program(kernel=Sdpa(broadcast=("kv_idx",)), mask=Causal())),
    ("kernel.broadcast", Program(mask=PER_BATCH)),
    ("kernel.mask_rank", Program(kernel=Sdpa(broadcast=("b",), mask_rank=2), mask=Causal())),
    ("kernel.block_mask", Program(kernel=Flex(), mask=Causal())),
    ("kernel.block_mask", Program(kernel=FLEX)),
    ("kernel.block_mask.batch", Program(kernel=FLEX, mask=PER_BATCH)),
    ("kernel.block_mask.heads", Program(kernel=FLEX, mask=BlockMap(per_head=True))),
    (
        "kernel.block_mask.spare_batch",
        Program(kernel=Flex(block_mask=BlockMaskSpec(spare_batch=1)), mask=Causal()),
    ),
    ("kernel.scale", handwritten(scaling="div", scale=0.0)),
    ("kernel.scale", handwritten(scaling="both", scale=-1.0)),
    ("kernel.scale_as", handwritten(scaling="mul", scale_as="integer")),
    ("kernel.scale_as", handwritten(scaling="div", scale=0.3, scale_as="integer")),
    ("kernel.scale_from", handwritten(scale_from="head_dim", scale_as="integer")),
    ("shape.kv_len", replace(handwritten(softmax="exp_sum"), shape=Shape(kv_len=0))),
    ("mask", Program(kernel=Function(target="m:f"), mask=AllTrue())),
    ("shape.q_heads", Program(kernel=Function(target="m:f"), shape=Shape(q_heads=2))),
    ("compile.options", Program(compile=Compile(mode="default", options={"freezing": True}))),
    ("compile.mode", Program(compile=Compile(backend="aot_eager", mode="default"))),
    ("compile.options", Program(compile=Compile(backend="eager", options={"freezing": True}))),
    ("grad_mode", Program(transform="jvp", grad_mode="no_grad")),
    ("grad_mode", Program(training=Training(), grad_mode="inference_mode")),
    ("transform", Program(training=Training(), transform="vmap")),
    ("training.wrt", Program(training=Training(wrt=("q", "q")))),
    ("training.wrt", Program(training=Training(wrt=()))),
    (
        "training.wrt",
        Program(kernel=Flex(return_lse=True), training=Training(wrt=("v",))),
    ),
    (
        "training.wrt",
        Program(kernel=Flex(return_lse=True), score_mod=TRUTH, training=Training()),
    ),
    (
        "training.wrt",
        Program(
            kernel=Flex(), score_mod=TRUTH, training=Training(wrt=("q", "k"))
        ),
    ),
    (
        "training.double",
        Program(training=Training(double=True), surround=Surround(checkpoint="reentrant")),
    ),
    ("transform", Program(transform="vmap", surround=Surround(checkpoint="full"))),
    ("mesh", Program(mesh=Mesh(), kernel=Flex())),
    ("mesh", Program(mesh=Mesh(), kernel=Handwritten(product="baddbmm"))),
    ("transform", Program(mesh=Mesh(), transform="grad")),
    ("autocast", Program(mesh=Mesh(), autocast="bfloat16")),
    ("surround.projections", Program(mesh=Mesh(), surround=PROJECTED)),
    ("mesh.world_size", Program(mesh=Mesh(world_size=2), compile=Compile())),
    ("mesh.world_size", Program(mesh=Mesh(world_size=2), training=Training())),
    ("mesh.ranks", Program(mesh=Mesh(ranks="processes"))),
    ("mask.table.dtype", masked(TableMask(table=Table(dtype="float32", init="ones")))),
    ("mask.table.init", masked(TableMask(table=Table(dtype="bool", init="uniform")))),
    ("mask.table.init", masked(TableMask(table=Table(init="sorted")))),
    ("mask.table.axes", masked(TableMask(table=Table(axes=("b", "b"))))),
    ("mask.inner.table.unit", masked(Not(inner=TableMask(table=Table(axes=("b",), unit=(1,)))))),
    ("mask.left.table.dtype", masked(Compare(
        op="<", left=IntLookup(table=Table(dtype="bool", init="coin")), right=Q))),
    ("score_mod.table.dtype", flex(FloatLookup(table=Table()))),
    ("mask.left.right", masked(Compare(
        op="<", left=IntBinary(op="//", left=Q, right=IntConst(value=0)), right=KV))),
    ("mask.left.right", masked(Compare(
        op="<", left=IntBinary(op="%", left=Q, right=KV), right=KV))),
    ("mask.left", masked(Compare(op="<", left=IntConst(value=1), right=IntConst(value=2)))),
    ("score_mod.index.right", flex(FromIndex(
        index=IntBinary(op="minimum", left=Q, right=IntConst(value=2))))),
    ("score_mod", flex(FloatConst(value=1.0))),
    ("score_mod.right", flex(FloatBinary(op="/", left=Score(), right=FloatConst(value=0.0)))),
    ("score_mod.left", flex(FloatBinary(
        op="+", left=FloatConst(value=1.0), right=FloatConst(value=2.0)))),
    ("score_mod.inner", flex(FloatCall(function="tanh", inner=FloatConst(value=1.0)))),
    ("score_mod.inner", flex(Softcap(inner=FloatConst(value=1.0)))),
    ("score_mod.inner", flex(FloatCall(function="neg", inner=TRUTH))),
    ("score_mod.right", flex(FloatBinary(op="-", left=Score(), right=TRUTH))),
]  # fmt: skip


@pytest.mark.parametrize(("key", "program"), BROKEN)
def test_each_rule_names_its_key(key: str, program: Program) -> None:
    found = problems(program)
    assert found[0].key == key
    assert all(problem.sentence.startswith("expected ") for problem in found)


VALID = [
    Program(),
    Program(mask=Causal(), kernel=Sdpa(mask_form="is_causal")),
    Program(mask=Causal(), kernel=Sdpa(mask_form="float", mask_requires_grad=True)),
    Program(mask=KeyPadding(), kernel=Sdpa(broadcast=("h", "q_idx"))),
    Program(mask=PER_BATCH, kernel=Flex(block_mask=BlockMaskSpec(batch=True, spare_batch=2))),
    Program(kernel=Handwritten(), mask=Causal(), k=NAN_KEYS),
    Program(kernel=Handwritten(scaling="mul", scale=0.0)),
    Program(q=BF16),  # torch refuses it: a program all the same
    packed("qkv", q=Input(layout=BSHD)),
    Program(surround=Surround(rope=True), q=Input(layout=BSHD)),
    Program(kernel=Function(target="module:attention"), mask=Causal()),
    flex(TRUTH),
    flex(Where(condition=Causal(), then=FloatConst(value=1.0), otherwise=Score())),
    Program(
        kernel=Sdpa(mask_form="float", mask_requires_grad=True),
        mask=Causal(),
        training=Training(wrt=()),
    ),
]


@pytest.mark.parametrize("program", VALID)
def test_valid_programs_have_no_problems(program: Program) -> None:
    assert problems(program) == []


def test_axes_are_those_that_an_expression_mentions() -> None:
    assert mask_axes(Causal()) == {"q_idx", "kv_idx"}
    assert mask_axes(KeyPadding(per_batch=False)) == {"kv_idx"}
    assert mask_axes(Documents(per_batch=True)) == {"b", "q_idx", "kv_idx"}
    assert mask_axes(And(left=Single(axis="kv_idx"), right=KeyPadding())) == {"b", "kv_idx"}
    assert mask_axes(SlidingWindow(window=3)) == {"q_idx", "kv_idx"}
    unit = Table(axes=("b", "h"), dtype="bool", init="coin", unit=(0,))
    assert mask_axes(TableMask(table=unit)) == {"h"}
    assert score_axes(Score()) == frozenset()
    assert score_axes(Where(condition=Causal(), then=FromIndex(index=Q), otherwise=Score())) == {
        "q_idx",
        "kv_idx",
    }
