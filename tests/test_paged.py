"""Keys and values in the pages of torch's own PagedAttention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from attnfuzz.generators.kernels.flex.paged import Paged
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.indices import Table
from attnfuzz.generators.model.program import Call, Input, Program, Shape, Training
from attnfuzz.generators.model.scores import FloatBinary, FloatLookup, RelativeBias, Score, Softcap
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import Swarm
from tests.support.rendered import calls_of, in_float64, load

SHAPE = Shape(batch=2, q_heads=4, kv_heads=2, q_len=12, kv_len=20)
PER_BATCH = masks.And(left=masks.Documents(count=3, per_batch=True), right=masks.Causal(offset=6))


def program(mask: Any = PER_BATCH, shape: Shape = SHAPE, **given: Any) -> Program:
    """With pages of 4 tokens; `given` are fields of Paged, and of the rest."""
    fields = Paged.__dataclass_fields__
    paged = Paged(**{name: value for name, value in given.items() if name in fields})
    spec = BlockMaskSpec(block_size=(8, 4), batch=True, heads=given.pop("heads", False))
    spec = replace(spec, paged=paged, full_blocks=given.pop("full_blocks", True))
    kernel = Flex(block_mask=spec, enable_gqa=True, joints=given.pop("joints", "operators"))
    kernel = replace(kernel, mods=given.pop("mods", "function"))
    rest = {name: value for name, value in given.items() if name not in fields}
    return Program(kernel=kernel, mask=mask, shape=shape, **rest)


RAGGED = replace(SHAPE, q_len=5, kv_len=18)
BIAS = FloatBinary(
    op="+",
    left=RelativeBias(inner=Score()),
    right=FloatLookup(table=Table(axes=("h", "kv_idx"), dtype="float32")),
)
PROGRAMS = {
    "plain": program(),
    "no full blocks": program(full_blocks=False, heads=True),
    "in two parts": program(parts=2, spare=1),
    "in two parts, padded": program(masks.KeyPadding(per_batch=True), parts=2),
    "a last page that is not full": program(shape=RAGGED, kv_len=True),
    "less than a page": program(shape=replace(SHAPE, kv_len=1), kv_len=True, parts=2),
    "the mask_mod converted": program(shape=RAGGED, converted="mask_mod", kv_len=True),
    "the score_mod too": program(shape=RAGGED, kv_len=True, parts=2, score_mod=BIAS),
    "of no length": program(score_mod=Softcap(inner=Score()), converted="mask_mod"),
    "joined": program(joints="functions", mods="partial", parts=2),
    "noop_mask": program(masks.AllTrue(), joints="functions"),
    "one that erases": program(shape=replace(SHAPE, batch=1), erased=True),
    "several calls": program(
        shape=RAGGED, kv_len=True, parts=2, spare=2,
        calls=(Call(batch=3, q_len=9, kv_len=7), Call(batch=1, q_len=1, kv_len=4)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_pages_mean_what_the_keys_themselves_do(name: str) -> None:
    module = load(PROGRAMS[name])
    for shape in calls_of(module):
        args = in_float64(module.inputs(*shape))
        with torch.no_grad():
            torch.testing.assert_close(
                module.attention(*args), module.reference(*args), rtol=1e-9, atol=1e-9
            )


@pytest.mark.slow
def test_dynamo_follows_the_pages() -> None:
    module = load(PROGRAMS["the score_mod too"])
    args = module.inputs()
    compiled = torch.compile(module.attention, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*args), module.attention(*args))


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_survive_yaml(name: str) -> None:
    assert load_program(dump_program(PROGRAMS[name])) == PROGRAMS[name]


INVALID = {
    "kernel.block_mask.paged": program(shape=replace(SHAPE, q_len=0)),
    "kernel.block_mask.paged.kv_len": program(shape=RAGGED),
    "training": program(training=Training()),
    "transform": program(transform="vmap"),
    "v.values": program(v=Input(values="inf")),
}


@pytest.mark.parametrize("key", INVALID)
def test_what_pages_cannot_mean_is_no_program(key: str) -> None:
    assert key in [problem.key for problem in problems(INVALID[key])]


def test_a_mask_that_is_made_inside_has_no_pages() -> None:
    plain = program()
    assert isinstance(plain.kernel, Flex)
    assert plain.kernel.block_mask is not None
    inside = replace(plain.kernel, block_mask=replace(plain.kernel.block_mask, made="inside"))
    keys = [problem.key for problem in problems(replace(plain, kernel=inside))]
    assert keys == ["kernel.block_mask.paged"]


def test_minimization_keeps_what_a_failure_needs_alone() -> None:
    current = program(shape=RAGGED, kv_len=True, parts=2, spare=2, erased=True, score_mod=BIAS)
    while found := next((p for p in candidates(current) if _erases(p)), None):
        current = found
    assert isinstance(current.kernel, Flex)
    assert current.kernel.block_mask is not None
    assert current.kernel.block_mask.paged == Paged(erased=True, kv_len=True)
    assert current.score_mod is None


def _erases(p: Program) -> bool:
    return "block_mask.paged.erased" in features(p)


def test_they_are_drawn_seldom() -> None:
    drawn = generate(3, 800, Swarm("inductor-flex"))
    paged = [p for p in drawn if "block_mask.paged" in features(p)]
    assert 800 / 100 < len(paged) < 800 / 15
    assert len({tuple(sorted(f for f in features(p) if "paged" in f)) for p in paged}) > 4


ASSIGNED = """\
    for part in (slice(9), slice(9, None)):
        paged.assign(entries, positions[:, part], k[:, :, part], v[:, :, part], k_cache, v_cache)
"""


def test_the_text_of_the_pages() -> None:
    text = source(PROGRAMS["the score_mod too"])
    assert ASSIGNED in text
    assert "paged.get_score_mod(" in text
    assert "paged.convert_logical_block_mask(block_mask, kv_len=kv_len)" in text
