"""Long-context attention of yunchang (xDiT), as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Yunchang:
    """`yunchang.LongContextAttention` over the ranks of the program's mesh, which are processes.

    Each rank is given its part of the sequence, contiguous, or as `ring` is zigzag or striped
    (`strip`, which is what yunchang calls it). Groups of `ulysses` ranks exchange sequence for
    heads; the others are a ring. `attn_type` is what computes a step of the ring, of torch's:
    `torch_flash` calls an operator that CPUs do not have, for which the script registers a stand-in
    over the CPU's own; `torch_math` is SDPA, without a log-sum-exp, for rings of one rank."""

    __pydantic_config__ = STRICT
    kind: Literal["yunchang"] = "yunchang"
    ring: Literal["basic_pytorch", "basic", "zigzag", "strip"] = "basic_pytorch"
    ulysses: Annotated[int, Field(ge=1, le=8)] = 1
    attn_type: Literal["torch_flash", "torch_math"] = "torch_flash"
    causal: bool = False
    scale: Scale | None = None
