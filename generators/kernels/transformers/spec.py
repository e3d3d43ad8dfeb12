"""Attention of Hugging Face transformers, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Transformers:
    """A mask of `transformers.masking_utils` and the attention function of one `implementation`
    (`attn_implementation`), as the layers of its models call them: with the module and the
    configuration of a small Llama. Their masks know no heads.

    `pattern` is what a layer's type says. With positions that count from the first token on, a
    query sees the keys before it and itself (`causal`), the last `window` of these (`sliding`),
    those of its own `window` tokens (`chunked`, counted from the first token that is no padding),
    every key (`bidirectional`), or those at most `window` away (`bidirectional_sliding`).
    `overlay`: a key is seen where the pattern `and` the program's mask say so, or either of them.

    `padding`: how much of each batch entry is padding, a third of the first, two thirds of the
    second, nothing of the third, and so on, at its end (`right`) or its beginning (`left`).
    `sequences` are packed into each entry, which `position_ids` say; their lengths grow as 1 : 2 :
    3. `block`: every second run of so many tokens is a block in which all see each other
    (`block_sequence_ids`); 0 is none.

    `cache`: the last Lq of Lkv tokens are new, and the keys and values of those before come from a
    cache, which took them in `updates` parts; a static cache has room for `spare` more. `made`:
    where the mask is made, inside the attention function or before it, as generation does.
    `softcap` c makes scores c * tanh(scores / c); 0 leaves them."""

    __pydantic_config__ = STRICT
    kind: Literal["transformers"] = "transformers"
    implementation: Literal["sdpa", "eager", "flex_attention"] = "sdpa"
    pattern: Literal["causal", "sliding", "chunked", "bidirectional", "bidirectional_sliding"] = (
        "causal"
    )
    window: Annotated[int, Field(ge=1, le=4096)] = 4
    overlay: Literal["and", "or"] = "and"
    padding: Literal["none", "right", "left"] = "none"
    sequences: Annotated[int, Field(ge=1, le=8)] = 1
    block: Annotated[int, Field(ge=0, le=64)] = 0
    cache: Literal["none", "dynamic", "static"] = "none"
    updates: Annotated[int, Field(ge=1, le=4)] = 1
    spare: Annotated[int, Field(ge=0, le=64)] = 0
    made: Literal["inside", "outside"] = "inside"
    scale: Scale | None = None
    softcap: Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)] = 0.0
