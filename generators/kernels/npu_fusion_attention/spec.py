"""`torch_npu.npu_fusion_attention`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT

Tockens = Annotated[int, Field(ge=0, le=2147483647)]


@dataclass(frozen=True, kw_only=True)
class NpuFusionAttention:
    """`torch_npu.npu_fusion_attention`, with its documented meaning. `input_layout`: how q, k and v
    are handed over (B batch, N heads, S length, D head_dim, H = N * D, T the tokens of all batch
    entries, one after the other).

    `sparse_mode` 0 and 1 take the program's mask as `atten_mask`, True where nothing is seen, of a
    `mask_shape` of the four that there are (1 needs a mask). The others have masks of their own,
    and take the triangle of 2048 x 2048 that their documentation asks for: 2 is causal from the
    top left, 3 from the bottom right, 4 a band around that diagonal, `pre_tockens` to its left and
    `next_tockens` to its right."""

    __pydantic_config__ = STRICT
    kind: Literal["npu_fusion_attention"] = "npu_fusion_attention"
    input_layout: Literal["BNSD", "BSND", "BSH", "SBH", "TND"] = "BNSD"
    scale: Scale | None = None
    sparse_mode: Literal[0, 1, 2, 3, 4] = 0
    pre_tockens: Tockens = 2147483647
    next_tockens: Tockens = 2147483647
    mask_shape: Literal["11SS", "SS", "B1SS", "BNSS"] = "11SS"
