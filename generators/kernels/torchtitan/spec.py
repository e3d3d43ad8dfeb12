"""Attention of TorchTitan, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Torchtitan:
    """The inner attention of a block of `torchtitan.models.common.attention`, `FlexAttention` or
    `ScaledDotProductAttention`, on q, k and v `[B, L, H, D]` of one length.

    SDPA knows the `pattern` `causal` and `all`. For flex the pattern is a factory of mask_mods:
    `window` is causal too, with the last `window` keys; `fixed_block` is the keys of the query's
    own block of `window` tokens. `documents` are packed into each entry, `sequences` of them, whose
    lengths grow as 1 : 2 : 3, and shrink so in every second entry. They are kept apart by their ids
    (`ids`), or, with a causal pattern, by where they begin and end (`bounds`). What is asked for is
    joined by `and_masks`, where it is more than one mask, with the program's own as the last. The
    BlockMask is made, compiled, before the block, with blocks of `block_size`.

    `checkpoint`: the trainer's activation checkpointing of the module: `full`, or `selective`,
    which saves what is costly and every second matrix product. `context_parallel`: the ranks of the
    program's mesh, which are processes, each have a part of the sequence, as the trainer's
    `apply_cp_to_forward` wants it: contiguous, or (for SDPA) the n-th part from both ends."""

    __pydantic_config__ = STRICT
    kind: Literal["torchtitan"] = "torchtitan"
    module: Literal["sdpa", "flex"] = "sdpa"
    pattern: Literal["causal", "all", "window", "fixed_block"] = "causal"
    window: Annotated[int, Field(ge=1, le=4096)] = 4
    documents: Literal["none", "ids", "bounds"] = "none"
    sequences: Annotated[int, Field(ge=1, le=8)] = 2
    block_size: Literal[128, 16, 32, 64, 256] = 128
    checkpoint: Literal["none", "full", "selective"] = "none"
    scale: Scale | None = None
    context_parallel: Literal["none", "plain", "headtail"] = "none"
