"""Where q, k and v come from: of their own, views of one buffer, or projected from one x."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from attnfuzz.generators.model.program import BSHD, Layout, Shape
from attnfuzz.generators.strategies.draws import Draw
from attnfuzz.generators.strategies.inputs import Inputs, layouts

PLAIN = Layout()


class Placed(NamedTuple):
    """Layouts of q, k and v, and which are packed. `alone`: they differ, or do not lie plainly, so
    that projections cannot make them."""

    packed: Literal["none", "kv", "qkv"]
    layouts: tuple[Layout, Layout, Layout]
    alone: bool


def placed(draw: Draw, inputs: Inputs, shape: Shape, dtypes: tuple[Any, Any, Any]) -> Placed:
    """How q, k and v of `dtypes` lie."""
    placing = draw(inputs.placing)
    alike = len(set(dtypes)) == 1
    packable = shape.v_head_dim in (None, shape.head_dim) and dtypes[1] == dtypes[2]
    if placing == "qkv" and packable and alike and shape.q_len == shape.kv_len:
        return Placed("qkv", (draw(inputs.q_order), PLAIN, PLAIN), True)
    if placing in ("kv", "qkv") and packable:
        return Placed("kv", (draw(layouts()), draw(inputs.kv_buffer), PLAIN), True)
    if placing == "all_bshd":
        return Placed("none", (BSHD, BSHD, BSHD), True)
    if placing == "each":
        return Placed("none", (draw(layouts()), draw(layouts()), draw(layouts())), True)
    return Placed("none", (PLAIN, PLAIN, PLAIN), not alike)
