"""torch's context parallelism of flex_attention, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class FlexContextParallel:
    """`_ContextParallel` around flex_attention: each rank has a part of q and its rows of the
    BlockMask, and gathers all of k and v. `balance`: the load balancer: `head_tail`,
    `per_document` (heads and tails of each half of the sequence), `ptrr` (by the blocks that the
    mask leaves to compute)."""

    __pydantic_config__ = STRICT
    kind: Literal["flex_context_parallel"] = "flex_context_parallel"
    balance: Literal["none", "head_tail", "per_document", "ptrr"] = "none"
