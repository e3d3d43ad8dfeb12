"""Attention of Hugging Face diffusers, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Diffusers:
    """`dispatch_attention_fn` of `diffusers.models.attention_dispatch`, through which its models
    attend, on q, k and v `[B, L, H, D]`.

    `backend`: the one that it gives them to; they promise the same. `is_causal`: each query sees
    the keys up to its own position, and there is no mask. `padding`: the mask is `[B, Lkv]`, which
    keys are no padding: a third of the first entry is, two thirds of the second, nothing of the
    third, and so on, at its end; `_native_math` takes no such mask. Otherwise the program's mask is
    handed over, bool or additive
    (`mask_form`), `[B, Hq, Lq, Lkv]` with extent 1 where it does not depend on an axis."""

    __pydantic_config__ = STRICT
    kind: Literal["diffusers"] = "diffusers"
    backend: Literal["native", "_native_math", "flex"] = "native"
    is_causal: bool = False
    padding: bool = False
    mask_form: Literal["bool", "float"] = "bool"
    scale: Scale | None = None
