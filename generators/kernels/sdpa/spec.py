"""`torch.nn.functional.scaled_dot_product_attention`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.kernels.spec import Scale
from attnfuzz.generators.model.indices import STRICT

Dim = Literal["b", "h", "q_idx", "kv_idx"]


@dataclass(frozen=True, kw_only=True)
class Sdpa:
    """`torch.nn.functional.scaled_dot_product_attention`.

    `mask_form`: how the program's mask is handed over. `is_causal` needs the mask to be
    `Causal(offset=0)` (top-left aligned, torch's documented meaning). `float` is an additive mask
    of 0 and -inf in q's dtype. `broadcast` lists the axes at which the mask tensor keeps extent 1;
    only axes that the mask does not depend on may be listed. `mask_rank` 2 or 3 drops leading
    broadcast axes. `mask_requires_grad` (float form only) makes the mask a leaf with a gradient.
    """

    __pydantic_config__ = STRICT
    kind: Literal["sdpa"] = "sdpa"
    backend: Literal["auto", "math", "flash", "efficient"] = "auto"
    scale: Scale | None = None
    mask_form: Literal["is_causal", "bool", "float"] = "bool"
    broadcast: tuple[Dim, ...] = ("b", "h")
    mask_rank: Literal[2, 3, 4] = 4
    mask_requires_grad: bool = False
    enable_gqa: bool = False
