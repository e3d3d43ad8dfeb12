"""Masks as tensors, and which masks can leave a query nothing to see."""

from __future__ import annotations

import re

from attnfuzz.generators.model import masks
from attnfuzz.generators.model.indices import Axis
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.render.expressions import ATOM
from attnfuzz.generators.render.masks import boolean
from attnfuzz.generators.render.mods import INDICES, grids
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import Size, commas


def dense_mask(mask: Mask, scene: Scene, name: str, shape: tuple[Size, ...]) -> list[str]:
    """Statements that set `name` to the mask as a bool tensor of `shape`: right-aligned with
    `[B, Hq, Lq, Lkv]`, extent 1 only at axes on which the mask does not depend."""
    captures = scene.captures(dense=True)
    expr = boolean(mask, captures)
    axes = tuple(axis for axis in INDICES if re.search(rf"\b{axis}\b", expr.text))
    text = expr.text
    if natural_shape(axes, scene) != shape:
        text = f"{expr.at(ATOM)}.expand({commas(shape)})"
        if scene.program.in_place:  # later calls write into it
            text += ".contiguous()"
    tables = [c.statement for c in captures.captured if c.statement]
    return [*tables, *grids(axes, scene.extents), f"{name} = {text}"]


def hidden_scores(fill: str, dtype: str) -> str:
    """What an additive mask of that dtype holds where a key is hidden, in torch's words."""
    return 'float("-inf")' if fill == "-inf" else f"torch.finfo(torch.{dtype}).min"


def natural_shape(axes: tuple[Axis, ...], scene: Scene) -> tuple[Size, ...]:
    """The shape of an expression over the grids of `axes`."""
    if not axes:
        return ()
    rank = 4 - INDICES.index(axes[0])
    return full_shape(scene, tuple(axis for axis in INDICES if axis not in axes))[-rank:]


def full_shape(scene: Scene, broadcast: tuple[Axis, ...]) -> tuple[Size, ...]:
    """`(B, Hq, Lq, Lkv)` with extent 1 at the `broadcast` axes."""
    return tuple(1 if axis in broadcast else scene.extents.of(axis) for axis in INDICES)


def may_hide_everything(mask: Mask | None, scene: Scene) -> bool:
    """Whether some query may see no key: false only where that is plain, as where each query sees
    the key at its own position."""
    if any(kv_len == 0 for _, kv_len in scene.lengths):
        return True
    match mask:
        case None | masks.AllTrue() | masks.PrefixLM(per_batch=False):
            return False
        case masks.Causal(offset=offset):
            return offset < 0
        case (
            masks.SlidingWindow() | masks.Documents() | masks.GlobalLocal() | masks.Natten()
            | masks.Tree()
        ):  # fmt: skip
            return any(q_len > kv_len for q_len, kv_len in scene.lengths)
    return True
