"""attention-gym's masks and score modifications for flex_attention, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class AttentionGym:
    """flex_attention with what `attn_gym.masks` and `attn_gym.mods` make, on as many keys as
    queries.

    `mask`: `sliding_window` looks `window` back, and `prefix_lm` has a prefix of that length;
    `dilated` sees every second key up to `window` away; `global_window` all keys up to `window`
    away, and all from and to every seventh token; `natten` a square of `window` by `window` on a
    canvas that is `canvas` wide, within which it stays. `within`: the mask holds for positions in
    one of `sequences` documents of growing length (`packed` is the mask that attention-gym has for
    causal documents), or in batches of `window` tokens. `fast`: the BlockMask of a causal mask, as
    `create_causal_block_mask_fast` makes it. `score`: ALiBi, or a cap of 8 by tanh. The program's
    mask is joined to it by `and_masks`."""

    __pydantic_config__ = STRICT
    kind: Literal["attention_gym"] = "attention_gym"
    mask: Literal[
        "causal", "sliding_window", "prefix_lm", "dilated", "global_window", "natten"
    ] = "causal"  # fmt: skip
    window: Annotated[int, Field(ge=1, le=1024)] = 3
    canvas: Annotated[int, Field(ge=1, le=256)] = 4
    within: Literal["all", "documents", "packed", "batches"] = "all"
    sequences: Annotated[int, Field(ge=1, le=8)] = 2
    fast: bool = False
    score: Literal["none", "alibi", "softcap"] = "none"
    block_size: Literal[128, 16, 32, 64] = 128
    scale: Scale | None = None
