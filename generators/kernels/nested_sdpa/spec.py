"""`torch.nn.functional.scaled_dot_product_attention` of nested tensors, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class NestedSdpa:
    """`torch.nn.functional.scaled_dot_product_attention` of nested tensors, without a mask.

    `made`: what q, k and v are when it is called. Of one batch entry, whose Lq and Lkv are cut into
    `sequences`: `jagged` is `[N, H, j, D]` out of values and offsets, `jagged_list` the same out of
    a list of tensors, and `strided` is such a list in torch's older layout. `narrow` is `[B, H, j,
    D]`, the first keys and queries of each batch entry, whose result is padded with 0.
    `ragged_batch` is `[N, j, H, L, D]`, the batch cut into `sequences`, each entry whole.

    `lengths`: they grow as 1 : 2 : 3, or are `random` ones from the program's seed, of which with
    `empty` some may be 0. `is_causal` is aligned to the top left in each sequence."""

    __pydantic_config__ = STRICT
    kind: Literal["nested_sdpa"] = "nested_sdpa"
    made: Literal["jagged", "jagged_list", "strided", "narrow", "ragged_batch"] = "jagged"
    sequences: Annotated[int, Field(ge=1, le=8)] = 2
    lengths: Literal["growing", "random", "empty"] = "growing"
    is_causal: bool = False
    scale: Scale | None = None
