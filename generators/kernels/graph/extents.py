"""How long each extent is in a call."""

from __future__ import annotations

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.sizes import Size


def sizes(program: Program, batch: Size, q_len: Size, kv_len: Size) -> dict[str, Size]:
    """How long each extent is in a call."""
    shape = program.shape
    return {
        "B": batch, "Hq": shape.q_heads, "Hkv": shape.kv_heads,
        "G": shape.q_heads // max(1, shape.kv_heads), "Lq": q_len, "Lkv": kv_len,
        "D": shape.head_dim, "Dv": shape.v_head_dim or shape.head_dim,
    }  # fmt: skip
