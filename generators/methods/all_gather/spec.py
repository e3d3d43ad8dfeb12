"""Gathered keys, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class AllGather:
    """Each rank keeps its part of q and gathers all of k and v; their gradients are summed over the
    ranks and scattered. `by`: DTensor's redistribution to `Replicate()`, or
    `all_gather_tensor_autograd` of the functional collectives, for parts that are alike."""

    __pydantic_config__ = STRICT
    kind: Literal["all_gather"] = "all_gather"
    by: Literal["dtensor", "collective"] = "dtensor"
