"""BlockMasks that are sliced, cropped, rebuilt and copied, and mask_mods put together of others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex

from attnfuzz.actors.oracles.noise import Noise
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.flex.steps import (
    Adjusted,
    Copied,
    Cut,
    Rebuilt,
    Shown,
    Sliced,
    Step,
)
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.indices import Table
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.program import Call, Compile, Input, Program, Shape, Training
from attnfuzz.generators.model.scores import FloatBinary, FloatLookup, Score
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import Swarm
from tests.support.rendered import calls_of, load, masks_seen

SHAPE = Shape(batch=2, q_heads=2, kv_heads=2, q_len=12, kv_len=20)
PER_BATCH = masks.And(left=masks.Documents(count=3, per_batch=True), right=masks.Causal(offset=6))
BIAS = Table(axes=("h", "kv_idx"), dtype="float32", init="normal")
PER_HEAD = masks.BlockMap(block=4, per_head=True)


def program(*steps: Step, mask: Mask = PER_BATCH, shape: Shape = SHAPE, **given: Any) -> Program:
    """With blocks of 8 queries and 4 keys; `given` are other fields of the BlockMask or of Flex."""
    of_mask = {"block_size": (8, 4), "batch": True, "heads": True, "steps": steps}
    of_flex: dict[str, Any] = {}
    for name, value in given.items():
        (of_flex if name in ("mods", "joints", "computed") else of_mask)[name] = value
    spec: dict[str, Any] = of_mask
    return Program(kernel=Flex(block_mask=BlockMaskSpec(**spec), **of_flex), mask=mask, shape=shape)


BATCHES = Sliced(batch=Cut(start=1, after=1))
DECODING = Sliced(rows=Cut(how="int", start=2, after=1))
PROGRAMS = {
    "batches": program(BATCHES),
    "batches in reverse": program(Sliced(batch=Cut(how="tensor", start=1))),
    "one batch for all": program(Sliced(batch=Cut(how="int", start=1, after=1))),
    "heads": program(Sliced(heads=Cut(how="tensor", after=1)), mask=PER_HEAD),
    "rows": program(Sliced(rows=Cut(start=1, after=1))),
    "rows in reverse": program(Sliced(rows=Cut(how="tensor", start=1, after=2))),
    "decoding": program(DECODING, shape=replace(SHAPE, q_len=5), steps_inside=True),
    "all at once": program(
        Sliced(batch=Cut(how="int", start=1), heads=Cut(start=1), rows=Cut(how="tensor")),
        mask=masks.Or(left=PER_HEAD, right=PER_BATCH),
    ),
    "twice": program(BATCHES, Sliced(batch=Cut(how="tensor", after=2), rows=Cut(start=1))),
    "adjusted": program(Adjusted(extra=(9, 3)), Sliced(rows=Cut(start=1))),
    "of own parts": program(Rebuilt(q_blocks=False)),
    "of partial blocks": program(Rebuilt(of="partial"), full_blocks=False),
    "of whole blocks": program(Rebuilt(of="whole"), Sliced(rows=Cut(start=1)), steps_inside=True),
    "one whole block for all": program(
        Sliced(heads=Cut(how="int", start=1)), Rebuilt(of="whole"), mask=PER_HEAD
    ),
    "listed": program(
        BATCHES, Sliced(rows=Cut(start=1)), Rebuilt(of="partial"), Rebuilt(of="listed"),
    ),
    "one listed block for all": program(
        Sliced(heads=Cut(how="int", start=1)), Rebuilt(of="listed"), mask=PER_HEAD,
        steps_inside=True,
    ),
    "copied": program(Copied(), Copied(through="as_tuple")),
    "kept by its structure": program(Copied(through="keyed"), mods="partial"),
    "unflattened": program(Copied(through="tree"), mods="nested", mask=masks.Or(
        left=PER_HEAD, right=PER_BATCH,
    )),
    "unflattened, of parts": program(
        Copied(through="tree"), joints="functions", mods="partial", steps_inside=True
    ),
    "unflattened, noop_mask": program(
        Copied(through="tree"), mask=masks.AllTrue(), joints="functions"
    ),
    "of drawn blocks": program(Shown(), Rebuilt(of="drawn"), heads=False),
    "made inside": program(BATCHES, made="inside", computed=True, mods="lambda"),
    "a computed map": program(BATCHES, mask=PER_HEAD, made="inside", computed=True),
    "a computed bias": replace(
        program(BATCHES, computed=True, mods="callable"),
        score_mod=FloatBinary(op="+", left=Score(), right=FloatLookup(table=BIAS)),
    ),
    "cached": program(BATCHES, made="cached"),
    "joined": program(
        BATCHES,
        mask=masks.Or(left=PER_BATCH, right=masks.And(left=PER_HEAD, right=masks.AllTrue())),
        joints="functions",
    ),
    "joined inside": program(joints="functions", mods="partial", made="inside", computed=True),
    "noop_mask": program(mask=masks.AllTrue(), joints="functions"),
    "lambda": program(mods="lambda"),
    "several calls": replace(
        program(Sliced(batch=Cut(start=1), rows=Cut(how="tensor", start=1)), Rebuilt(of="partial")),
        calls=(Call(batch=3, q_len=17, kv_len=9), Call(batch=2, q_len=12, kv_len=20)),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_is_what_eager_attention_gives(name: str) -> None:
    for actual, expected in masks_seen(load(PROGRAMS[name])):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_noise_does_not_change_what_is_seen(name: str) -> None:
    module = load(PROGRAMS[name])
    args = module.inputs(*calls_of(module)[0])
    expected = module.reference(*args)
    with Noise(torch.float32, seed=1):
        noisy = module.reference(*args)
    torch.testing.assert_close(noisy, expected, rtol=1e-3, atol=1e-3)


def sparse(block_mask: Any, q_len: int, kv_len: int) -> torch.Tensor:
    """What a kernel lets through that goes by the lists of blocks: `[B, H, Lq, Lkv]`."""
    (rows, columns), mod = block_mask.BLOCK_SIZE, block_mask.mask_mod
    seen = flex.create_mask(mod, *block_mask.kv_num_blocks.shape[:2], q_len, kv_len, device="cpu")
    let = torch.zeros_like(seen)
    lists = [(block_mask.kv_num_blocks, block_mask.kv_indices, seen)]
    if block_mask.full_kv_num_blocks is not None:
        full = block_mask.full_kv_num_blocks, block_mask.full_kv_indices
        lists.append((*full, torch.ones_like(seen)))
    for counts, indices, inside in lists:
        for b, h, row in torch.cartesian_prod(*map(torch.arange, counts.shape)).tolist():
            for column in indices[b, h, row, : counts[b, h, row]].tolist():
                at = (b, h, slice(row * rows, (row + 1) * rows))
                where = (*at, slice(column * columns, (column + 1) * columns))
                let[where] = inside[where]
    return let


def block_mask_of(program: Program) -> Any:
    """What the program's flex_attention is given."""
    taken: list[Any] = []

    def flex_attention(q: Any, k: Any, v: Any, block_mask: Any, **_: Any) -> Any:
        taken.append(block_mask)
        return q

    module = load(program)
    vars(module)["flex_attention"] = flex_attention
    module.attention(*module.inputs())
    (block_mask,) = taken
    return block_mask


def means_one_thing(program: Program) -> bool:
    """Whether the blocks let through what the mask_mod does: eager attention goes by the mask_mod
    alone, a kernel by both."""
    block_mask, shape = block_mask_of(program), program.shape
    extents = (*block_mask.kv_num_blocks.shape[:2], shape.q_len, shape.kv_len)
    seen = flex.create_mask(block_mask.mask_mod, *extents, device="cpu")
    return sparse(block_mask, shape.q_len, shape.kv_len).equal(seen)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sorted({*PROGRAMS} - {"several calls", "adjusted"}),  # the last: pytorch/pytorch#188208
)
def test_the_blocks_mean_what_the_mask_mod_means(name: str) -> None:
    assert means_one_thing(PROGRAMS[name])


FAULTS = Path(__file__).parent.parent / "benchmarks" / "planted_masks"
HARMED = {
    "or_masks_of_last": "joined",
    "dense_without_full_blocks": "one whole block for all",
    "as_tuple_lengths_swapped": "copied",
    "sliced_one_block_short": "rows",
}
PATCHED = (
    (flex, "or_masks"), (flex.BlockMask, "to_dense"), (flex.BlockMask, "as_tuple"),
    (flex.BlockMask, "__getitem__"),
)  # fmt: skip


def is_right(program: Program) -> bool:
    """Whether eager attention gives what the reference does, and a kernel would."""
    try:
        ((actual, expected),) = masks_seen(load(program))
        return torch.allclose(actual, expected) and means_one_thing(program)
    except ValueError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("fault", [path.stem for path in sorted(FAULTS.glob("*.py"))])
def test_a_planted_fault_is_met_by_its_step_alone(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    exec(compile((FAULTS / f"{fault}.py").read_text(), fault, "exec"), {})
    assert not is_right(PROGRAMS[HARMED[fault]])
    assert is_right(program())
    assert is_right(PROGRAMS["of own parts"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("dense_without_full_blocks", "one listed block for all"),
        ("sliced_one_block_short", "listed"),
    ],
)
def test_a_lost_block_shows_in_eager_attention(
    fault: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, attribute in PATCHED:
        monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
    exec(compile((FAULTS / f"{fault}.py").read_text(), fault, "exec"), {})
    ((actual, expected),) = masks_seen(load(PROGRAMS[name]))
    assert not torch.allclose(actual, expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_survive_yaml(name: str) -> None:
    assert problems(PROGRAMS[name]) == []
    assert load_program(dump_program(PROGRAMS[name])) == PROGRAMS[name]


INVALID = {
    "steps[0]": program(Sliced()),
    "steps[0].batch": program(BATCHES, mask=masks.Causal(), batch=False),
    "steps[1].heads": program(Sliced(heads=Cut(how="int")), Sliced(heads=Cut())),
    "steps[0].rows": program(DECODING),
    "steps[1].of": program(Adjusted(extra=(0, 1)), Rebuilt(of="whole")),
    "steps": replace(program(Rebuilt(q_blocks=False)), training=Training()),
    "compiled_call": program(compiled=True, compiled_call=True),
}


@pytest.mark.parametrize("key", INVALID)
def test_what_torch_cannot_mean_is_no_program(key: str) -> None:
    assert f"kernel.block_mask.{key}" in [problem.key for problem in problems(INVALID[key])]


def test_what_is_compiled_looks_at_no_blocks() -> None:
    for step in (Shown(), Rebuilt(of="drawn")):
        for given in ({"made": "inside"}, {"steps_inside": True}):
            keys = [problem.key for problem in problems(program(step, **given))]
            assert keys == ["kernel.block_mask.steps[0]"]


def test_two_tensors_are_no_index_by_each() -> None:
    both = program(Sliced(batch=Cut(how="tensor"), heads=Cut(how="tensor")))
    assert [problem.key for problem in problems(both)] == ["kernel.block_mask.steps[0]"]


def test_empty_sequences_have_no_blocks_to_slice() -> None:
    empty = program(BATCHES, shape=replace(SHAPE, kv_len=0))
    assert problems(empty)


def simplest(start: Program, fails: Any) -> Program:
    """Where minimization ends."""
    current = start
    while (simpler := next((p for p in candidates(current) if fails(p)), None)) is not None:
        current = simpler
    return current


def test_minimization_drops_the_steps_that_a_failure_does_not_need() -> None:
    start = program(
        Copied(through="as_tuple"), Sliced(batch=Cut(start=2), rows=Cut(start=1, after=1)),
        Rebuilt(of="partial"), joints="functions", full_blocks=False,
    )  # fmt: skip
    found = simplest(start, lambda p: "block_mask.sliced.rows" in features(p))
    assert isinstance(found.kernel, Flex)
    assert found.kernel.block_mask is not None
    assert found.kernel.block_mask == BlockMaskSpec(steps=(Sliced(rows=Cut()),))
    assert found.kernel.joints == "operators"


def test_the_plain_block_mask_stays_the_most_frequent() -> None:
    drawn = [p.kernel for p in generate(7, 400, Swarm("inductor-flex"))]
    made = [k.block_mask for k in drawn if isinstance(k, Flex) and k.block_mask is not None]
    assert len(made) / 12 < sum(bool(spec.steps) for spec in made) < len(made) / 2
    kinds = {step.kind for spec in made for step in spec.steps}
    assert kinds == {"sliced", "adjusted", "rebuilt", "copied", "shown"}


NO_TILES = (
    "NoValidChoicesError: No choices to select. Provided reason: No choices exist for backend."
)


@pytest.mark.parametrize(
    ("block", "q_len", "mode", "refused"),
    [
        ((64, 64), 300, None, False),  # one tile alone: a ValueError says so
        ((64, 64), 300, "max-autotune", True),
        ((64, 64), 40, None, False),  # decoding: tiles of 64
        ((64, 64), 100, None, True),  # of 128
        ((64, 100), 40, None, True),
        ((128, 128), 100, "max-autotune", False),
    ],
)
def test_no_valid_choices_is_a_refusal_where_no_tile_divides_the_blocks(
    block: tuple[int, int], q_len: int, mode: Any, refused: bool
) -> None:
    asked = Program(
        kernel=Flex(block_mask=BlockMaskSpec(block_size=block)),
        mask=masks.Causal(),
        shape=Shape(q_len=q_len, kv_len=300),
        compile=Compile(mode=mode),
    )
    matching = [r for r in for_program(asked) if re.search(r.pattern, NO_TILES)]
    assert bool(matching) is refused


SLICED = """\
    sliced = block_mask[1, :, 2:4]
    sliced.mask_mod = sliced_mod(block_mask.mask_mod)
    sliced.seq_lengths = (12, 20)
"""


def test_the_text_of_a_slice() -> None:
    text = source(program(Sliced(batch=Cut(how="int", start=1), rows=Cut(start=2))))
    assert SLICED in text
    assert "mask_mod(torch.full_like(b, 1), h, q_idx + 16, kv_idx)" in text
    assert ".expand(2, 2, 28, 20)[1:2, :, 16:28]" in text


def test_keys_that_no_query_sees_are_looked_for_with_the_mask_mod_that_is_there() -> None:
    shared = replace(
        program(mask=masks.AllTrue(), joints="functions"),
        k=Input(values="nan_at_masked"),
        calls=(Call(batch=2, q_len=20, kv_len=20, fresh_mods=False),),
    )
    assert "create_mask(noop_mask," in source(shared)
    module = load(shared)
    for call in calls_of(module):
        _, k, *_ = module.inputs(*call)
        assert k.isfinite().all()
