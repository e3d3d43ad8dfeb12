"""Attention in several layers, and as a region that is compiled once for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnfuzz.generators.kernels.specs import Flex, Graph, Handwritten
from attnfuzz.generators.model.program import Compile, Mesh, Program, Shape, Surround, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.shards import shard_programs

REGION = Surround(region=True)
LAYERS = Surround(layers=2)
COMPILED = Program(compile=Compile(backend="aot_eager"))


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (Program(surround=REGION), "surround.region"),
        (replace(COMPILED, surround=REGION, transform="vmap"), "transform"),
        (replace(COMPILED, surround=REGION, mesh=Mesh()), "mesh"),
        (replace(COMPILED, surround=REGION, training=Training(double=True)), "training.double"),
        (
            replace(COMPILED, surround=replace(REGION, integration="disable")),
            "surround.integration",
        ),
        (
            replace(COMPILED, surround=REGION, compile=Compile(backend="eager", via="export")),
            "compile.via",
        ),
        (Program(surround=LAYERS, shape=Shape(v_head_dim=8)), "shape.v_head_dim"),
        (Program(surround=LAYERS, kernel=Flex(return_lse=True)), "kernel.return_lse"),
        (
            Program(surround=LAYERS, kernel=Handwritten(out_layout="blhd")),
            "surround.layers",
        ),
    ],
)
def test_what_has_no_layers_is_no_program(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_regions_are_drawn_for_what_is_compiled() -> None:
    drawn = [
        p
        for profile in ("inductor-sdpa", "inductor-flex", "graph")
        for index in range(20)
        for p in shard_programs(5, index, 10, {profile: 1.0})
    ]
    regions = [p for p in drawn if p.surround.region]
    assert all(p.compile is not None for p in regions)
    assert any(p.surround.layers > 1 for p in regions)
    assert any(isinstance(p.kernel, Graph) for p in regions)
    assert any(p.surround.layers > 1 for p in drawn if not p.surround.region)
