"""`torch.nn.attention.varlen.varlen_attn`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT

Reach = Annotated[int, Field(ge=-1, le=4096)]


@dataclass(frozen=True, kw_only=True)
class Varlen:
    """`torch.nn.attention.varlen.varlen_attn` on one batch entry whose lengths are cut into
    `sequences`, which grow as 1 : 2 : 3. It takes float16 and bfloat16, and has kernels for CUDA
    alone. `window`: how many keys a query sees to the left and right of the one that it is aligned
    with, the last query with the last key; -1 is all, and (-1, 0) is torch's causal attention.
    `out`: it is `varlen_attn_out`, which writes into a tensor that it is given, and has no
    gradient."""

    __pydantic_config__ = STRICT
    kind: Literal["varlen"] = "varlen"
    sequences: Annotated[int, Field(ge=1, le=8)] = 2
    window: tuple[Reach, Reach] = (-1, -1)
    scale: Scale | None = None
    enable_gqa: bool = False
    out: bool = False
