"""A function of the ring_flash_attn package, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class RingFlashAttn:
    """A function of ring_flash_attn (0.1.8) over the ranks of the program's mesh, which are
    processes. What each rank computes of a step is flash_attn's, so float16 is needed, or bfloat16.

    `ring`: `ring_flash_attn_func` on parts of the sequence in order, `zigzag_ring_flash_attn_func`
    or `stripe_flash_attn_func` on parts as these want them, or `llama3_flash_attn_varlen_func`,
    which gathers `heads_k_stride` key heads at a time, on `sequences` that are packed into one
    batch entry, whose lengths grow as 1 : 2 : 3."""

    __pydantic_config__ = STRICT
    kind: Literal["ring_flash_attn"] = "ring_flash_attn"
    ring: Literal["contiguous", "zigzag", "striped", "llama3"] = "contiguous"
    causal: bool = False
    scale: Scale | None = None
    sequences: Annotated[int, Field(ge=1, le=8)] = 1
    heads_k_stride: Annotated[int, Field(ge=1, le=8)] = 1
