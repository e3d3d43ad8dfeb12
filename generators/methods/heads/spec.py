"""Attention heads over tensor-parallel ranks, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Tensor parallelism of attention: each rank has some of the heads, of k and v as of q, and
    computes these."""

    __pydantic_config__ = STRICT
    kind: Literal["heads"] = "heads"
