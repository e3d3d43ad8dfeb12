"""A function of the flash_attn package, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class KVCache:
    """The cache of `flash_attn_with_kvcache`, whose extent is Lkv: `append`: the last keys and
    values, that many, are new ones that the call writes into it; `ragged`: each batch
    entry fills its cache differently far (`cache_seqlens`); `page_size`: the cache lies in pages,
    found by a `block_table` (0: it does not)."""

    __pydantic_config__ = STRICT
    append: Annotated[int, Field(ge=0, le=64)] = 0
    ragged: bool = False
    page_size: Literal[0, 256] = 0


@dataclass(frozen=True, kw_only=True)
class FlashAttn:
    """A function of the flash_attn package (2.8), with its documented meaning, which needs
    float16 or bfloat16. `function`: `flash_attn_func`, the same with k and v or all three stacked
    in one tensor, `flash_attn_varlen_func` on one batch entry whose lengths are cut into
    `sequences` (growing ones, the first may be empty), or `flash_attn_with_kvcache` on a `cache`.

    `causal` is aligned to the bottom right: query i sees keys up to i + Lkv - Lq. `window`: how
    many keys it sees to the left and right of that one, -1 for all. `softcap` above 0 makes scores
    s softcap * tanh(s / softcap). `alibi`: slopes `[Hq]` or `[B, Hq]`, float32, times the distance
    to that key, subtracted. `deterministic`: the backward's own option."""

    __pydantic_config__ = STRICT
    kind: Literal["flash_attn"] = "flash_attn"
    function: Literal["func", "kvpacked", "qkvpacked", "varlen", "kvcache"] = "func"
    scale: Scale | None = None
    causal: bool = False
    window: tuple[
        Annotated[int, Field(ge=-1, le=4096)], Annotated[int, Field(ge=-1, le=4096)]
    ] = (-1, -1)  # fmt: skip
    softcap: Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e4)] = 0.0
    alibi: Literal["none", "heads", "batch"] = "none"
    deterministic: bool = False
    sequences: Annotated[int, Field(ge=1, le=8)] = 1
    cache: KVCache = field(default_factory=KVCache)
