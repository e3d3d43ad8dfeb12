"""What rendered programs compute: masks against their definitions, attention against reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.model import masks, scores
from attnfuzz.generators.model.indices import Table
from attnfuzz.generators.model.program import (
    Call,
    Input,
    Layout,
    Mesh,
    Program,
    Surround,
    Training,
)
from attnfuzz.generators.model.scores import Score, ScoreMod
from tests.support.rendered import FLEX, HEAD, SHAPE, Q, calls_of, load

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_process_group() -> Iterator[None]:
    """A program with a mesh begins a process group, which is its process's only one."""
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# -- attention against reference, in float64, every dimension ------------------------------------

BIAS = Table(axes=("h", "q_idx"), dtype="float32", init="normal")
MASKED = replace(
    Program(), shape=SHAPE, mask=masks.And(left=masks.KeyPadding(), right=masks.Causal(offset=-1))
)


def flex(score: ScoreMod | None = None, **spec: Any) -> Program:
    kernel = replace(FLEX, block_mask=BlockMaskSpec(batch=True, **spec))
    return replace(MASKED, kernel=kernel, score_mod=score)


def by_hand(**spec: Any) -> Program:
    return replace(MASKED, kernel=Handwritten(**spec), mask=masks.Causal())


def sdpa(**spec: Any) -> Program:
    return replace(MASKED, kernel=Sdpa(**{"broadcast": ("h",), "enable_gqa": True, **spec}))


def plain(**rest: Any) -> Program:
    return replace(MASKED, kernel=Sdpa(backend="math", enable_gqa=True), mask=None, **rest)


LONGER = (Call(batch=1, q_len=3, kv_len=20), Call(batch=2, q_len=9, kv_len=12))

SCORES: dict[str, ScoreMod] = {
    "alibi": scores.Alibi(inner=Score()),
    "alibi-written-out": scores.Alibi(inner=Score(), captured=False),
    "softcap": scores.Softcap(inner=Score(), cap=2.0),
    "relative": scores.RelativeBias(inner=Score(), per_head=True),
    "masked": scores.MaskedScore(mask=masks.Causal(), inner=Score()),
    "truth": scores.Truth(mask=masks.Causal()),
    "integer": scores.Truth(mask=masks.Causal(), integer=True),
    "chained": scores.FloatBinary(
        op="*", left=Score(), right=scores.FloatLookup(table=BIAS, chained=True)
    ),
    "score-free": scores.FloatCall(
        function="sin", inner=scores.FloatBinary(
            op="minimum", left=scores.FromIndex(index=Q), right=scores.FloatLookup(table=BIAS)
        ),
    ),
    "learnable": scores.FloatBinary(
        op="-", left=Score(), right=scores.FloatLookup(table=BIAS, requires_grad=True)
    ),
    "where": scores.Where(
        condition=masks.Documents(), then=scores.FloatConst(value=-1.5), otherwise=Score()
    ),
    "bool-arithmetic": scores.FloatBinary(
        op="*",
        left=scores.FloatBinary(
            op="+", left=scores.Truth(mask=masks.Causal()), right=scores.Truth(mask=masks.Tree())
        ),
        right=scores.FromIndex(index=HEAD),
    ),
}  # fmt: skip

TRAINED = Training(wrt=("q", "k", "v"))
VARIANTS: dict[str, Program] = {
    **{f"score-{name}": flex(score) for name, score in SCORES.items()},
    "flex-inside": flex(SCORES["learnable"], made="inside"),
    "flex-adjusted": flex(built_for_extra=(7, 130), block_size=(16, 128)),
    "flex-spare": flex(spare_batch=2, built_for_extra=(3, 0)),
    **{
        f"flex-{style}": replace(
            flex(SCORES["relative"]),
            kernel=replace(FLEX, block_mask=BlockMaskSpec(batch=True), mods=style),
        )
        for style in ("nested", "partial", "callable")
    },
    "flex-partial-of-nothing": replace(
        flex(), mask=masks.Causal(), kernel=replace(FLEX, mods="partial")
    ),
    "flex-callable-inside": replace(
        flex(),
        kernel=replace(FLEX, block_mask=BlockMaskSpec(batch=True, made="inside"), mods="callable"),
    ),
    "flex-cached": flex(made="cached"),
    "flex-cached-adjusted-calls": replace(
        flex(made="cached", spare_batch=1, built_for_extra=(2, 2)),
        calls=LONGER,
    ),
    "flex-cached-function-calls": replace(
        flex(made="cached"),
        mask=masks.Causal(),
        calls=LONGER,
    ),
    "flex-method-score": replace(
        flex(SCORES["relative"]), mask=None, kernel=Flex(enable_gqa=True, mods="method")
    ),
    "flex-lse": replace(flex(), kernel=replace(FLEX, return_lse=True, scale=0.3)),
    "flex-nan": replace(flex(), k=Input(values="nan_at_masked", layout=Layout(expand=(1,)))),
    "sdpa-math": sdpa(backend="math"),
    "sdpa-float": sdpa(mask_form="float"),
    "sdpa-float-trained": replace(
        sdpa(mask_form="float", mask_requires_grad=True, broadcast=()), training=TRAINED
    ),
    "sdpa-rank-3": replace(
        sdpa(mask_rank=3, broadcast=("b",)), mask=masks.BlockMap(block=4, per_head=True)
    ),
    "sdpa-rank-2": replace(
        sdpa(mask_rank=2, broadcast=("b", "h")), mask=masks.SlidingWindow(window=1)
    ),
    "sdpa-is-causal": replace(sdpa(mask_form="is_causal"), mask=masks.Causal()),
    "no-keys": plain(shape=replace(SHAPE, kv_len=0)),
    "no-queries": plain(shape=replace(SHAPE, q_len=0)),
    "value-dim": plain(shape=replace(SHAPE, v_head_dim=5)),
    **{
        f"by-hand-{p}-{'t' if t else 'n'}-{m}": by_hand(product=p, transposed=t, masking=m)
        for p in ("matmul", "einsum", "bmm", "baddbmm", "rank5")
        for t in (False, True)
        for m in ("add", "masked_fill", "where")
    },
    **{
        f"by-hand-{s}-{a}": by_hand(scaling=s, scale_as=a, scale=0.7 if a == "tensor" else None)
        for s in ("mul", "div", "query_mul", "query_div", "key_mul", "both", "none")
        for a in ("constant", "tensor")
    },
    **{
        f"by-hand-{s}-{size}": by_hand(scaling=s, scale_as=a, scale_from=size)
        for s in ("mul", "div", "query_mul", "query_div", "key_mul", "both")
        for size, a in (("head_dim", "constant"), ("q_len", "tensor"))
    },
    **{
        f"by-hand-{s}-{p}-integer": by_hand(product=p, scaling=s, scale_as="integer", scale=0.5)
        for s in ("div", "query_div")
        for p in ("matmul", "baddbmm")
    },
    "by-hand-function-q-len": replace(
        by_hand(scale_from="q_len"), surround=Surround(integration="autograd_function")
    ),
    "sdpa-q-len": replace(sdpa(scale_from="q_len"), calls=LONGER),
    "sdpa-rank-3-q-len": sdpa(scale_from="q_len", input_rank=3),
    "flex-q-len": replace(flex(), kernel=replace(FLEX, scale_from="q_len"), calls=LONGER),
    "by-hand-baddbmm-mul": by_hand(product="baddbmm", scaling="mul", scale_as="tensor"),
    **{
        f"by-hand-{s}-{t}": by_hand(softmax=s, transpose=t, fill="finfo_min", gqa="expand")
        for s in ("functional", "method", "module", "exp_sum")
        for t in ("transpose", "mT", "permute")
    },
    "by-hand-blhd": by_hand(out_layout="blhd", dropout=True),
    "by-hand-merged": by_hand(out_layout="merged", product="einsum"),
    "by-hand-per-head-rank5": replace(
        by_hand(product="rank5"), mask=masks.BlockMap(block=4, per_head=True)
    ),
    "trained": plain(training=TRAINED),
    "trained-transposed": plain(training=replace(TRAINED, grad_layout="transposed")),
    "trained-expanded": plain(training=replace(TRAINED, grad_layout="expanded", wrt=("k",))),
    "trained-full-checkpoint": plain(training=TRAINED, surround=Surround(checkpoint="full")),
    "trained-selective": plain(training=TRAINED, surround=Surround(checkpoint="selective")),
    "trained-reentrant": plain(training=TRAINED, surround=Surround(checkpoint="reentrant")),
    "checkpoint-forward": plain(surround=Surround(rope=True, checkpoint="full")),
    "trained-twice": plain(training=replace(TRAINED, double=True)),
    "vmap": plain(transform="vmap"),
    "vmap-rope": plain(transform="vmap", surround=Surround(rope=True, qk_norm=True)),
    "grad": plain(transform="grad"),
    "jvp": plain(transform="jvp"),
    "module": plain(surround=Surround(projections=True, rope=True, qk_norm=True)),
    "interleaved": plain(surround=Surround(rope=True, rope_interleaved=True)),
    "interleaved-vmap": plain(
        transform="vmap", surround=Surround(rope=True, rope_interleaved=True)
    ),
    "module-trained": plain(surround=Surround(projections=True), training=TRAINED),
    "module-self": plain(
        surround=Surround(projections=True), shape=replace(SHAPE, q_len=12), training=TRAINED
    ),
    "gated-module": plain(surround=Surround(projections=True, epilogue="gated"), training=TRAINED),
    "residual-flat": replace(
        by_hand(product="baddbmm", scaling="query_mul"), surround=Surround(epilogue="residual")
    ),
    "gated-vmap": plain(transform="vmap", surround=Surround(rope=True, epilogue="gated")),
    "residual-jvp": plain(transform="jvp", surround=Surround(epilogue="residual")),
    "scaled-lse": replace(
        MASKED, kernel=replace(FLEX, return_lse=True), surround=Surround(epilogue="scaled")
    ),
    "layers": plain(surround=Surround(layers=3), training=TRAINED),
    "layers-flex": replace(flex(SCORES["relative"]), surround=Surround(layers=2, rope=True)),
    "layers-by-hand": replace(
        by_hand(product="baddbmm"), surround=Surround(layers=2, checkpoint="full")
    ),
    "layers-module": plain(
        surround=Surround(layers=2, projections=True, qk_norm=True), training=TRAINED
    ),
    "layers-calls": replace(flex(), surround=Surround(layers=2), calls=LONGER),
    "mesh-of-one": plain(mesh=Mesh(q="heads", k="heads", v="batch"), training=TRAINED),
    "mesh-by-length": plain(mesh=Mesh(world_size=4, q="length")),
    "mesh-uneven": replace(
        by_hand(masking="where"), mesh=Mesh(world_size=3, q="length", k="length", v="length")
    ),
    "mesh-partial": replace(by_hand(), mesh=Mesh(world_size=2, q="head_dim", k="head_dim")),
    "mesh-replicated": replace(sdpa(backend="math"), mesh=Mesh(world_size=2)),
    "mesh-rope": plain(
        mesh=Mesh(world_size=2, q="batch", k="batch", v="batch"),
        surround=Surround(rope=True, epilogue="gated"),
    ),
    "mesh-calls": plain(
        mesh=Mesh(world_size=2, q="length"), calls=(Call(batch=1, q_len=4, kv_len=2),)
    ),
    "no-grad": plain(grad_mode="no_grad"),
    "inference": plain(grad_mode="inference_mode"),
    "calls": replace(
        flex(SCORES["relative"]),
        calls=LONGER,
    ),
    "calls-cached": replace(
        flex(SCORES["relative"], built_for_extra=(2, 2)),
        calls=(
            Call(batch=1, q_len=3, kv_len=20, fresh_mods=False),
            Call(batch=2, q_len=9, kv_len=12, fresh_mods=False),
        ),
    ),
    "calls-by-hand": replace(
        by_hand(product="baddbmm", masking="add"),
        calls=(Call(batch=3, q_len=1, kv_len=2), Call(batch=1, q_len=4, kv_len=4)),
    ),
    "calls-module": plain(
        surround=Surround(projections=True, rope=True), calls=(Call(batch=1, q_len=2, kv_len=2),)
    ),
    "dirty": plain(dirty_memory=True),
    "packed-kv": plain(packed="kv"),
    "packed-qkv": plain(
        packed="qkv", shape=replace(SHAPE, q_len=12), q=Input(layout=Layout(order=(1, 0, 2, 3)))
    ),
}


def float64(program: Program) -> Program:
    """The program with float64 inputs, where only a wrong meaning exceeds rounding."""
    wide = {name: replace(getattr(program, name), dtype="float64") for name in ("q", "k", "v")}
    return replace(program, **wide)


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_means_reference(name: str) -> None:
    import torch

    torch._dynamo.reset()
    module = load(float64(VARIANTS[name]))
    for call in calls_of(module):
        expected = module.run(module.reference, module.inputs(*call))
        actual = module.run(module.attention, module.inputs(*call))
        assert actual.keys() == expected.keys()
        for output, value in expected.items():
            assert actual[output].shape == value.shape, output
            torch.testing.assert_close(
                actual[output].double(), value.double(), rtol=1e-9, atol=1e-9, equal_nan=True
            )


@pytest.mark.parametrize(
    "layout",
    [
        Layout(),
        Layout(order=(0, 2, 1, 3)),
        Layout(order=(3, 2, 0, 1)),
        Layout(order=(1, 2, 3, 0), step=(1, 2, 3, 1), pad=(1, 0, 2, 3), start=(0, 1, 2, 3)),
        Layout(order=(2, 0, 1, 3), expand=(0, 2)),
    ],
)
def test_layout_is_what_it_says(layout: Layout) -> None:
    """Strides follow from the storage's extents in `order`, offsets from `start`."""
    shape = (2, 4, 9, 8)
    module = load(Program(shape=replace(SHAPE, kv_heads=4), q=Input(layout=layout)))
    q = module.inputs()[0]
    extents = [
        1 if d in layout.expand else shape[d] * layout.step[d] + layout.start[d] + layout.pad[d]
        for d in range(4)
    ]
    strides, offset, stride = [0] * 4, 0, 1
    for dim in reversed(layout.order):
        offset += layout.start[dim] * stride
        strides[dim] = 0 if dim in layout.expand else stride * layout.step[dim]
        stride *= extents[dim]
    assert tuple(q.shape) == shape
    assert list(q.stride()) == strides
    assert q.storage_offset() == offset


def test_inputs_are_the_same_every_time() -> None:
    """Cached closures must not change what is drawn after them, nor learnable tables before."""
    program = VARIANTS["calls-cached"]
    module = load(program)
    for call in [*module.CALLS, *module.CALLS]:
        first, second = module.inputs(*call), module.inputs(*call)
        for a, b in zip(first[:3], second[:3], strict=True):
            assert bool((a == b).all())
        assert first[-1] is second[-1]


def test_a_learnable_bias_has_a_gradient() -> None:
    module = load(replace(flex(SCORES["learnable"]), training=Training(wrt=())))
    assert set(module.run(module.reference, module.inputs())) == {"out", "dbias"}


def test_fresh_closures_are_new_each_time() -> None:
    module = load(replace(VARIANTS["calls-cached"], calls=(Call(batch=2, q_len=9, kv_len=12),)))
    assert module.inputs(2, 9, 12)[-1] is not module.inputs(2, 9, 12)[-1]
