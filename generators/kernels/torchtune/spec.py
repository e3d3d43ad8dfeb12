"""torchtune's attention, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Torchtune:
    """What `torchtune.modules.MultiHeadAttention` calls on q, k and v `[B, H, L, D]`
    (`_sdpa_or_flex_attention`), with key heads expanded to those of q as it expands them.

    With the `pattern` `packed`, `sequences` are packed into each entry, whose lengths grow as 1 : 2
    : 3, and shrink so in every second entry; a query sees the keys of its own sequence up to its
    position. `packed_block_causal_mask` makes the mask: on a card that torchtune trusts with it a
    BlockMask, with which flex_attention is called, compiled, and elsewhere a bool mask `[B, L, L]`
    for SDPA. `causal` and `all` have SDPA without a mask, `masked` SDPA with the program's own as a
    bool mask `[B, Lq, Lkv]`."""

    __pydantic_config__ = STRICT
    kind: Literal["torchtune"] = "torchtune"
    pattern: Literal["packed", "causal", "all", "masked"] = "packed"
    sequences: Annotated[int, Field(ge=1, le=8)] = 2
