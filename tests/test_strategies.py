"""What the strategies make: valid programs, of every kind, within their cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.model import masks as masks_module
from attnfuzz.generators.model import scores as scores_module
from attnfuzz.generators.model.expressions import nodes
from attnfuzz.generators.model.indices import Table
from attnfuzz.generators.model.masks import KeyPadding
from attnfuzz.generators.model.program import Program, Shape
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.inputs import layouts
from attnfuzz.generators.strategies.masks import masks
from attnfuzz.generators.strategies.programs import programs
from attnfuzz.generators.strategies.scores import score_mods
from attnfuzz.generators.strategies.shapes import affordable, cost, shapes
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import EVERYTHING, MAX_COST, Swarm


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    return generate(20_25, 5000)


def kinds(union: Any) -> set[str]:
    return {node.kind for node in get_args(get_args(union)[0])}


def parts(node: Any) -> Iterator[Any]:
    """All dataclasses of a tree."""
    yield node
    for field in fields(node):
        value = getattr(node, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                yield from parts(item)


def test_all_are_valid(drawn: list[Program]) -> None:
    assert [problem for program in drawn for problem in problems(program)] == []


def test_hardly_any_two_are_alike(drawn: list[Program]) -> None:
    assert len({repr(replace(program, seed=0)) for program in drawn}) > 1950


def test_all_round_trip(drawn: list[Program]) -> None:
    from attnfuzz.generators.model.codec import dump_program, from_data, load_program, to_data

    assert [from_data(to_data(program), "data") for program in drawn] == drawn
    assert [load_program(dump_program(program)) for program in drawn[::20]] == drawn[::20]


def test_all_render_to_source_that_parses(drawn: list[Program]) -> None:
    from attnfuzz.generators.render.module import source

    for program in drawn[::4]:
        ast.parse(source(program))


@pytest.mark.slow
def test_every_program_renders_to_source_whose_names_are_defined(
    drawn: list[Program], tmp_path: Path
) -> None:
    from attnfuzz.generators.render.module import source

    for place, program in enumerate(drawn):
        (tmp_path / f"{place}.py").write_text(source(program))
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--output-format"]
    checked = subprocess.run(
        [*ruff, "concise", "--select", "E9,F821,F823", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout[-3000:]


def test_every_node_appears(drawn: list[Program]) -> None:
    seen = Counter(
        (type(node).__module__, node.kind)
        for program in drawn
        for tree in (program.mask, program.score_mod)
        for _, node in nodes(tree)
    )
    for module, union in (
        (masks_module, masks_module.Mask),
        (scores_module, scores_module.ScoreMod),
    ):
        missing = {kind for kind in kinds(union) if seen[module.__name__, kind] < 5}
        assert missing == set()


def values_of(cls: type, name: str, drawn: list[Program]) -> set[Any]:
    return {
        getattr(part, name) for program in drawn for part in parts(program) if type(part) is cls
    }


@pytest.mark.parametrize("cls", [Program, Sdpa, Flex, Handwritten, Table])
def test_every_choice_of_every_field_appears(cls: type, drawn: list[Program]) -> None:
    from attnfuzz.generators.model.tree import parts as declared

    for part in declared(cls):
        if part.sort == "choice":
            values = values_of(cls, part.name, drawn)
            assert set(part.choices) <= values, (cls, part.name)


def test_every_way_to_compile_and_train_appears(drawn: list[Program]) -> None:
    compiled = [program.compile for program in drawn if program.compile]
    assert {c.backend for c in compiled} == {"eager", "aot_eager", "inductor"}
    assert {c.dynamic for c in compiled} == {None, True, False}
    assert len({c.mode for c in compiled}) == 6
    assert len({tuple(c.options) for c in compiled}) > 10
    trained = [program.training for program in drawn if program.training]
    kinds = {"none", "full", "selective", "reentrant"}
    assert {p.surround.checkpoint for p in drawn if p.training} == kinds
    assert {p.surround.checkpoint for p in drawn if p.training is None} == kinds
    assert {t.grad_layout for t in trained} == {"contiguous", "transposed", "expanded"}
    assert {t.double for t in trained} == {True, False}
    assert len({t.wrt for t in trained}) == 8  # a table alone, too


def test_the_boundaries_of_shapes_appear(drawn: list[Program]) -> None:
    lengths = Counter(length for p in drawn for length in (p.shape.q_len, p.shape.kv_len))
    assert all(lengths[n] for n in (0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1024))
    assert sum(n for length, n in lengths.items() if length > 300) < 0.1 * 2 * len(drawn)
    groups = {p.shape.q_heads // p.shape.kv_heads for p in drawn if p.shape.kv_heads}
    assert {1, 2, 3, 4, 5, 6} <= groups
    assert any(p.shape.q_len > p.shape.kv_len for p in drawn)
    assert any(p.shape.v_head_dim for p in drawn)
    layouts_seen = {p.k.layout for p in drawn}
    assert len({layout.order for layout in layouts_seen}) == 24
    assert len(layouts_seen) > 100


def test_every_call_is_affordable(drawn: list[Program]) -> None:
    for program in drawn:
        for call in program.calls:
            shape = replace(program.shape, batch=call.batch, q_len=call.q_len, kv_len=call.kv_len)
            assert cost(shape) <= MAX_COST
        assert cost(program.shape) <= MAX_COST


def is_refused(program: Program) -> bool:
    """Torch 2.13 refuses it on a CPU by design, as far as one can tell from the data."""
    kernel, dtypes = program.kernel, {program.q.dtype, program.k.dtype, program.v.dtype}
    inductor = program.compile is not None and program.compile.backend == "inductor"
    return (
        (len(dtypes) > 1 and program.autocast is None)
        or (
            isinstance(kernel, Flex)
            and (
                (program.training is not None and bool(program.training.wrt))
                or program.transform != "none"
                or (inductor and (kernel.return_lse or "float64" in dtypes))
            )
        )
        or (isinstance(kernel, Sdpa) and kernel.backend == "efficient")
    )


def test_few_are_refused_by_design_but_some_are(drawn: list[Program]) -> None:
    refused = sum(map(is_refused, drawn))
    assert 0 < refused < 0.03 * len(drawn)


def test_each_profile_is_about_what_it_says() -> None:
    made = Counter(
        program.kernel.block_mask.made
        for program in generate(5, 300, profile="traced")
        if isinstance(program.kernel, Flex) and program.kernel.block_mask and program.compile
    )
    assert made["cached"] > 20 and made["inside"] > 30
    block_masks = [
        program.kernel.block_mask
        for program in generate(5, 300, profile="block_masks")
        if isinstance(program.kernel, Flex) and program.kernel.block_mask
    ]
    assert sum(bool(block_mask.steps) for block_mask in block_masks) > len(block_masks) / 3
    guards = generate(5, 600, profile="guards")
    assert sum(program.argument is not None for program in guards) > 80
    assert sum(program.modes.compiled_autograd for program in guards) > 30
    npu = generate(5, 300, profile="npu_fusion_attention")
    assert sum(program.mesh is not None for program in npu) > 30


def test_a_swarm_without_refusals_has_none() -> None:
    features = tuple(name for name in EVERYTHING.features if name != "refused")
    assert not any(map(is_refused, generate(3, 600, Swarm("mixed", features))))


@settings(max_examples=60, database=None)
@given(st.data())
def test_parts_serve_in_other_tests(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    mask = data.draw(masks(shape=shape))
    score_mod = data.draw(score_mods(shape=shape))
    layout = data.draw(layouts())
    assert cost(shape) <= MAX_COST
    assert type(mask) in get_args(get_args(masks_module.Mask)[0])
    assert type(score_mod) in get_args(get_args(scores_module.ScoreMod)[0])
    assert sorted(layout.order) == [0, 1, 2, 3]


@settings(max_examples=100, database=None)
@given(programs())
def test_programs_are_valid_in_plain_hypothesis_too(program: Program) -> None:
    assert problems(program) == []
    assert program.seed == 0


def test_programs_shrink_to_what_matters() -> None:
    def padded(program: Program) -> bool:
        return isinstance(program.kernel, Flex) and isinstance(program.mask, KeyPadding)

    phases = (Phase.generate, Phase.shrink)  # explaining would call it with further programs
    thorough = settings(database=None, phases=phases, max_examples=5000)
    simplest = find(programs(), padded, settings=thorough, random=Random(2))
    assert simplest.mask == KeyPadding()
    assert isinstance(simplest.kernel, Flex)
    assert simplest.kernel.block_mask == BlockMaskSpec(batch=True)
    rest = replace(simplest, kernel=Sdpa(), mask=None, shape=Shape())
    assert rest == Program()


def test_affordable_keeps_lengths_and_the_ratio_of_heads() -> None:
    dear = Shape(batch=4, q_heads=8, kv_heads=2, q_len=1024, kv_len=300, head_dim=128)
    fits = affordable(dear, MAX_COST)
    assert cost(fits) <= MAX_COST < cost(dear)
    assert (fits.q_len, fits.kv_len) == (1024, 300)
    assert fits.q_heads // fits.kv_heads == 4
    longest = affordable(replace(dear, kv_len=1100), MAX_COST)
    assert (longest.q_len, longest.kv_len, longest.head_dim) == (1024, 1100, 16)
