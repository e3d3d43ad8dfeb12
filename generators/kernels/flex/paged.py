"""Keys and values in the pages of torch's own `PagedAttention`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Paged:
    """k and v are written into pages of a cache `[1, Hkv, pages * page, D]` that all batch entries
    share, in the attention function; a page has as many tokens as the BlockMask's blocks have keys.
    `converted`: the BlockMask for k's length, by `convert_logical_block_mask`, or the mask_mod, of
    which a BlockMask is created for the whole cache. `parts`: in how many parts tokens get their
    pages (`reserve`) and are written (`assign`), all entries in turn. `spare`: pages more than are
    needed. `first`: the entry of the page table that q's first batch entry has; those before it
    hold a page each. `erased`: entries hold a page each and give it up (`erase`) before they get
    their own. `kv_len`: the length of k is given to what is converted, which it need not be where
    pages are full."""

    __pydantic_config__ = STRICT
    converted: Literal["block_mask", "mask_mod"] = "block_mask"
    parts: Literal[1, 2] = 1
    spare: Annotated[int, Field(ge=0, le=4)] = 0
    first: Annotated[int, Field(ge=0, le=4)] = 0
    erased: bool = False
    kv_len: bool = False
