"""mask_mod and dense masks against an independent reading of each family's definition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.indices import IntBinary, IntConst, IntLookup, Table
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.mods import INDICES
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.scene import Scene
from tests.support.rendered import FLEX, HEAD, KV, LKV, LQ, SHAPE, B, H, Q, load

pytestmark = pytest.mark.slow

Tables = dict[str, Any]
Meaning = Callable[[int, int, int, int, Tables], bool]


def ancestors(i: int, branching: int) -> set[int]:
    found = {i}
    while i:
        i = (i - 1) // branching
        found.add(i)
    return found


SORTED = Table(axes=("b", "kv_idx"), init="sorted", limit=3)
COIN = Table(axes=("h", "q_idx", "kv_idx"), dtype="bool", init="coin", unit=(1,))
MASKS: dict[str, tuple[Mask, Meaning]] = {
    "causal": (masks.Causal(offset=-2), lambda b, h, q, k, t: q - 2 >= k),
    "window": (masks.SlidingWindow(window=3), lambda b, h, q, k, t: 0 <= q - k <= 3),
    "dilated": (
        masks.SlidingWindow(window=4, causal=False, dilation=2),
        lambda b, h, q, k, t: abs(q - k) <= 4 and (q - k) % 2 == 0,
    ),
    "prefix": (masks.PrefixLM(prefix=5), lambda b, h, q, k, t: k < 5 or q >= k),
    "prefix-per-batch": (
        masks.PrefixLM(prefix=9, per_batch=True),
        lambda b, h, q, k, t: k < t["prefix"][b] or q >= k,
    ),
    "documents": (
        masks.Documents(count=3, per_batch=True, causal=True, shared_prefix=2),
        lambda b, h, q, k, t: k < 2 or (t["document"][b][q] == t["document"][b][k] and q >= k),
    ),
    "global-local": (
        masks.GlobalLocal(tokens=2, window=1),
        lambda b, h, q, k, t: k < 2 or q < 2 or abs(q - k) <= 1,
    ),
    "block-map": (
        masks.BlockMap(block=4, per_head=True),
        lambda b, h, q, k, t: t["block_map"][h][q // 4][k // 4],
    ),
    "tree": (masks.Tree(branching=3), lambda b, h, q, k, t: k in ancestors(q, 3)),
    "natten": (
        masks.Natten(width=4, radius=1),
        lambda b, h, q, k, t: abs(q // 4 - k // 4) <= 1 and abs(q % 4 - k % 4) <= 1,
    ),
    "padding": (masks.KeyPadding(), lambda b, h, q, k, t: k < t["length"][b]),
    "table": (masks.TableMask(table=COIN), lambda b, h, q, k, t: t["table"][h][0][k]),
    "chained": (
        masks.TableMask(table=SORTED, chained=True), lambda b, h, q, k, t: t["table"][b][k] != 0
    ),
    "row": (masks.Single(axis="q_idx", at=3), lambda b, h, q, k, t: q == 3),
    "compare": (
        masks.Compare(
            op="!=",
            left=IntBinary(
                op="%", left=IntBinary(op="-", left=Q, right=KV), right=IntConst(value=3)
            ),
            right=IntBinary(
                op="minimum", left=HEAD, right=IntBinary(op="//", left=KV, right=IntConst(value=-5))
            ),
        ),
        lambda b, h, q, k, t: (q - k) % 3 != min(h, k // -5),
    ),
    "lookup": (
        masks.Compare(op="<=", left=KV, right=IntLookup(table=Table(axes=("b",), limit=12))),
        lambda b, h, q, k, t: k <= t["table"][b],
    ),
    "combined": (
        masks.Not(
            inner=masks.Or(
                left=masks.And(left=masks.Causal(), right=masks.Not(inner=masks.AllFalse())),
                right=masks.Single(axis="kv_idx", at=5),
            )
        ),
        lambda b, h, q, k, t: not ((q >= k and not False) or k == 5),
    ),
    "nothing": (masks.AllFalse(), lambda b, h, q, k, t: False),
}  # fmt: skip


def captured(mod: Callable[..., Any]) -> Tables:
    """The tables in a mod's closure, as lists."""
    cells = zip(mod.__code__.co_freevars, mod.__closure__ or (), strict=True)
    return {name: cell.cell_contents.tolist() for name, cell in cells}


@pytest.mark.parametrize("name", MASKS)
def test_mask_mod_means_its_definition(name: str) -> None:
    import torch

    mask, meaning = MASKS[name]
    module = load(Program(kernel=FLEX, shape=SHAPE, mask=mask))
    mask_mod = module.inputs()[-1].mask_mod
    tables = captured(mask_mod)
    for at in product(range(B), range(H), range(LQ), range(LKV)):
        seen = bool(mask_mod(*map(torch.tensor, at)))
        assert seen == bool(meaning(*at, tables)), at


def rendered(mask: Mask) -> Tables:
    """The names that the rendering of a program with `mask` defines in `inputs`: `attn_mask`
    `[B, Hq, Lq, Lkv]` and the mask's tables."""
    program = Program(kernel=Sdpa(broadcast=(), enable_gqa=True), shape=SHAPE, mask=mask)
    names: Tables = {}
    body = source(program).split("def inputs():\n")[1].split("    return")[0]
    exec(body.replace("\n    ", "\n").removeprefix("    "), load(program).__dict__, names)
    return names


@pytest.mark.parametrize("name", MASKS)
def test_dense_mask_means_its_definition(name: str) -> None:
    mask, meaning = MASKS[name]
    names = rendered(mask)
    dense = names["attn_mask"]
    tables = {n: t.tolist() for n, t in names.items() if hasattr(t, "tolist")}
    assert tuple(dense.shape) == (B, H, LQ, LKV)
    for at in product(range(B), range(H), range(LQ), range(LKV)):
        assert bool(dense[at]) == bool(meaning(*at, tables)), at


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_varies_along_its_axes_alone(name: str) -> None:
    mask, _ = MASKS[name]
    dense = rendered(mask)["attn_mask"]
    for dimension, axis in enumerate(INDICES):
        if axis not in mask_axes(mask):
            assert bool((dense == dense.narrow(dimension, 0, 1)).all()), axis


@pytest.mark.parametrize("name", MASKS)
def test_a_query_sees_a_key_where_that_is_promised(name: str) -> None:
    mask, _ = MASKS[name]
    if not may_hide_everything(mask, Scene(Program(shape=SHAPE, mask=mask))):
        assert bool(rendered(mask)["attn_mask"].any(dim=-1).all())
