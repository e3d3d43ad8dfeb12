"""Features: every choice that is not the default has its string, and no default has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.methods.specs import AllGather, Heads
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.indices import Index, IntBinary, IntConst, IntLookup, Table
from attnfuzz.generators.model.masks import (
    AllTrue,
    And,
    Causal,
    Compare,
    KeyPadding,
    Not,
    TableMask,
)
from attnfuzz.generators.model.program import (
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
from attnfuzz.generators.model.scores import (
    Alibi,
    FloatBinary,
    FloatCall,
    FloatLookup,
    FromIndex,
    Score,
    Softcap,
    Truth,
)
from attnfuzz.generators.strategies.programs import programs

COMPILED = {"compile", "compile.aot_eager", "compile.inductor"}
FLEX = {"kernel.flex"}
SMALL = Table(axes=("kv_idx",))


def test_the_default_program_has_none() -> None:
    assert features(Program()) == frozenset()
    assert features(Program(seed=5)) == frozenset()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kernel": Flex(kernel_options={"BLOCK_M": 32})}, FLEX | {"kernel_options.BLOCK_M"}),
        ({"kernel": Sdpa(backend="math", scale=0.0)},
         {"kernel.sdpa.backend.math", "kernel.sdpa.scale", "kernel.sdpa.scale.0"}),
        ({"kernel": Sdpa(scale=-1.0)}, {"kernel.sdpa.scale", "kernel.sdpa.scale.negative"}),
        ({"kernel": Handwritten(scaling="mul", dropout=True)},
         {"kernel.handwritten", "kernel.handwritten.scaling.mul", "kernel.handwritten.dropout"}),
        ({"shape": Shape(q_len=1, kv_len=1)},
         {f"shape.{name}.{what}" for name in ("q_len", "kv_len") for what in (1, "lt16", "mod16")}),
        ({"shape": Shape(q_len=300, kv_len=0)},
         {"shape.q_len.gt16", "shape.q_len.gt128", "shape.q_len.mod16", "shape.kv_len.0",
          "shape.kv_len.lt16", "shape.q!=kv"}),
        ({"shape": Shape(q_heads=6, kv_heads=2), "kernel": Sdpa(enable_gqa=True)},
         {"shape.heads", "shape.gqa", "shape.gqa.nonpow2", "kernel.sdpa.enable_gqa"}),
        ({"kernel": Sdpa(enable_gqa=True)}, {"kernel.sdpa.enable_gqa"}),
        ({"shape": Shape(batch=2, head_dim=24, v_head_dim=16)},
         {"shape.batch", "shape.head_dim.nonpow2", "shape.head_dim.gt16", "shape.v_head_dim"}),
        ({"shape": Shape(v_head_dim=16)}, set()),
        ({"q": Input(dtype="bfloat16", values="huge")}, {"dtype.q.bfloat16", "values.q.huge"}),
        ({"k": Input(layout=Layout(order=(0, 2, 1, 3), pad=(0, 0, 0, 1), expand=(1,)))},
         {"layout.k.order", "layout.k.pad", "layout.k.expand"}),
        ({"packed": "qkv", "autocast": "bfloat16", "dirty_memory": True, "transform": "vmap"},
         {"packed.qkv", "autocast.bfloat16", "dirty_memory", "transform.vmap"}),
        ({"surround": Surround(rope=True)}, {"surround.rope"}),
        (
            {"surround": Surround(rope=True, rope_interleaved=True)},
            {"surround.rope", "surround.rope_interleaved"},
        ),
        ({"surround": Surround(epilogue="scaled")}, {"surround.epilogue"}),
        ({"mesh": Mesh(plain_mask=True)}, {"mesh", "mesh.plain_mask"}),
        ({"mesh": Mesh(world_size=2, ranks="processes")},
         {"mesh", "mesh.world_size", "mesh.processes"}),
        ({"mesh": Mesh(world_size=3, q="length")},
         {"mesh", "mesh.world_size", "mesh.q.length", "mesh.uneven"}),
        (
            {"surround": Surround(epilogue="gated")},
            {"surround.epilogue", "surround.epilogue.gated"},
        ),
        ({"compile": Compile()}, COMPILED),
        ({"compile": Compile(backend="eager", dynamic=True, fullgraph=False)},
         {"compile", "compile.dynamic.true", "compile.fullgraph.false"}),
        ({"compile": Compile(options={"max_autotune": True})},
         COMPILED | {"compile.options.max_autotune"}),
        ({"calls": (Call(batch=1, q_len=16, kv_len=1, fresh_mods=False),)},
         {"calls", "calls.kv_len", "calls.kv_len.lt2", "calls.reused_mods"}),
        ({"training": Training(wrt=("q",)), "surround": Surround(checkpoint="full")},
         {"training", "training.dq", "surround.checkpoint.full"}),
        ({"mask": AllTrue()}, {"mask"}),
        ({"mask": And(left=Causal(offset=2), right=Not(inner=AllTrue()))},
         {"mask", "mask.and", "mask.causal", "mask.causal.offset", "mask.not"}),
        ({"mask": KeyPadding(), "kernel": Sdpa(broadcast=("h",))},
         {"mask", "mask.key_padding", "mask.on.b"}),
        ({"mask": Causal(), "kernel": Sdpa(broadcast=("h",))},
         {"mask", "mask.causal", "kernel.sdpa.broadcast"}),
        ({"mask": TableMask(table=Table(dtype="int32"), chained=True)},
         {"mask", "mask.table", "mask.table.chained", "table.chained", "table.axes0",
          "table.int32"}),
        ({"mask": Compare(op="<", left=IntLookup(table=SMALL), right=IntConst(value=3))},
         {"mask", "mask.compare", "int.lookup"}),
        ({"mask": KeyPadding(), "kernel": Flex(block_mask=BlockMaskSpec(
            batch=True, heads=True, block_size=(96, 64), built_for_extra=(0, 1), made="inside"))},
         FLEX | {"mask", "mask.key_padding", "mask.on.b", "block_mask", "block_mask.heads",
                 "block_mask.block_size", "block_mask.block_size.oblong",
                 "block_mask.block_size.nonpow2", "block_mask.adjusted", "block_mask.inside"}),
        ({"mask": AllTrue(), "kernel": Flex(block_mask=BlockMaskSpec(block_size=(1, 1)))},
         FLEX | {"mask", "block_mask", "block_mask.block_size", "block_mask.block_size.odd"}),
        ({"kernel": Flex(), "score_mod": Softcap(inner=FloatCall(function="tanh", inner=Score()))},
         FLEX | {"score", "score.softcap", "score.call.tanh"}),
        ({"kernel": Flex(), "score_mod": Alibi(inner=Score(), captured=False)},
         FLEX | {"score", "score.alibi", "score.alibi.captured.false", "score.on.h"}),
        ({"kernel": Flex(), "score_mod": Truth(mask=Compare(
            op="==", left=IntBinary(op="%", left=Index(axis="b"), right=IntConst(value=2)),
            right=IntConst(value=0)))},
         FLEX | {"score", "score.ignores_score", "score.ignores_q_idx", "score.ignores_kv_idx",
                 "score.broadcasts", "score.on.b", "score.truth", "mask.compare", "int.binary.%"}),
        ({"kernel": Flex(), "score_mod": FromIndex(index=Index(axis="q_idx"))},
         FLEX | {"score", "score.broadcasts", "score.ignores_score", "score.ignores_kv_idx",
                 "score.integral"}),
        ({"kernel": Flex(), "score_mod": FloatBinary(op="+", left=Score(), right=FloatLookup(
            table=Table(axes=("h", "q_idx"), unit=(0,), dtype="float16"), requires_grad=True))},
         FLEX | {"score", "score.binary.+", "score.lookup", "score.lookup.requires_grad",
                 "table.axes2", "table.unit", "table.float16"}),
    ],
)  # fmt: skip
def test_each_choice_has_its_feature(changes: dict[str, Any], expected: set[str]) -> None:
    assert features(replace(Program(), **changes)) == expected


@settings(max_examples=200)
@given(programs())
def test_features_are_short_words(program: Program) -> None:
    for feature in features(program):
        assert 0 < len(feature) <= 80
        assert feature == feature.strip() and " " not in feature


@settings(max_examples=200)
@given(programs())
def test_the_seed_is_no_feature(program: Program) -> None:
    assert features(replace(program, seed=0)) == features(program)


def test_extents_that_ranks_share_evenly_are_those_of_one_rank() -> None:
    def of(method: Any, degree: int, **extents: int) -> set[str]:
        mesh = Mesh(world_size=degree, method=method)
        return {
            one for one in features(Program(mesh=mesh, shape=Shape(**extents))) if "shape" in one
        }

    assert of(AllGather(), 3, q_len=48, kv_len=48) == of(AllGather(), 1) == set()
    assert of(Heads(), 4, q_heads=4, kv_heads=4) == set()
    assert of(Heads(), 2, q_heads=4, kv_heads=4) == {"shape.heads"}
    assert "shape.q_len.lt16" in of(AllGather(), 4, q_len=16, kv_len=16)
    assert "shape.q_len.gt16" in of(AllGather(), 3, q_len=50, kv_len=50)


def test_three_layers_have_what_two_have() -> None:
    two, three = (Program(surround=Surround(layers=n)) for n in (2, 3))
    assert features(two) < features(three)
