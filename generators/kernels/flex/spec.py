"""`torch.nn.attention.flex_attention.flex_attention` and its BlockMask, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.flex.paged import Paged
from attnfuzz.generators.kernels.flex.steps import Step
from attnfuzz.generators.kernels.spec import Scale, ScaleFrom
from attnfuzz.generators.model.indices import STRICT
from attnfuzz.generators.model.options import KernelOptions

Difference = Annotated[int, Field(ge=-256, le=256)]
BlockEdge = Annotated[int, Field(ge=1, le=1024)]


@dataclass(frozen=True, kw_only=True)
class BlockMaskSpec:
    """How the program's mask becomes a `BlockMask`.

    `batch`/`heads`: built for every batch/head or broadcast (`None`; only when the mask does not
    depend on it). `made`: `outside` (an argument of the attention function), `inside` (built in
    the attention function, hence in the compiled region) or `cached` (built there when the
    identity of its mask_mod is met for the first time, and kept in a global). `compiled`:
    `_compile=True`. `built_for_extra`: built for lengths (Lq + x, Lkv + y), then adjusted with
    `_adjust(Lq, Lkv)`.
    `spare_batch`: built for that many more batches than q has, then indexed down `[:B]`.
    `full_blocks`: `separate_full_blocks`. `compiled_call`: `torch.compile(create_block_mask)`.
    `other`: how many more batches, heads, queries and keys it is created for than the call has,
    fewer where that is negative, and given as it is: torch refuses other lengths, and looks at the
    mask_mod alone in eager mode, which is defined for both.
    `steps`: what is then done to it, in `inputs` or (`steps_inside`) in the attention function, as
    it is there anyway where the BlockMask is made there.
    `paged`: k and v are kept in pages, and the mask is converted for these.
    `dq_write_order`: it is created with the order in which a deterministic backward pass adds to
    dq, by ascending or descending blocks of keys.
    """

    __pydantic_config__ = STRICT
    block_size: tuple[BlockEdge, BlockEdge] = (128, 128)
    batch: bool = False
    heads: bool = False
    made: Literal["outside", "inside", "cached"] = "outside"
    compiled: bool = False
    built_for_extra: tuple[
        Annotated[int, Field(ge=0, le=512)], Annotated[int, Field(ge=0, le=512)]
    ] = (0, 0)
    spare_batch: Annotated[int, Field(ge=0, le=4)] = 0
    other: tuple[Difference, Difference, Difference, Difference] = (0, 0, 0, 0)
    full_blocks: bool = True
    compiled_call: bool = False
    steps: Annotated[tuple[Step, ...], Field(max_length=4)] = ()
    steps_inside: bool = False
    paged: Paged | None = None
    dq_write_order: Literal["none", "ascending", "descending"] = "none"


@dataclass(frozen=True, kw_only=True)
class Flex:
    """`torch.nn.attention.flex_attention.flex_attention`. Without a `block_mask` the program's
    mask must be None. `return_lse` also returns the log-sum-exp `[B, Hq, Lq]`, float32. `mods`: how
    mask_mod and score_mod are written: a `function` (a closure where it captures tables), a
    `nested` function that calls another, a `partial`, a bound `method`, a `callable` object or a
    `lambda`. `joints`: And and Or at the root of the mask are `operators`, or `and_masks` and
    `or_masks` of mask_mods of their own, with `noop_mask` where everything is seen. `computed`:
    what the score_mod captures, or the mask_mod where the mask is built inside (tables, and a
    number that is another in each call), is computed in the attention function. `scale_from`: see
    `ScaleFrom`."""

    __pydantic_config__ = STRICT
    kind: Literal["flex"] = "flex"
    scale: Scale | None = None
    scale_from: ScaleFrom = "constant"
    block_mask: BlockMaskSpec | None = None
    kernel_options: KernelOptions = field(default_factory=dict)
    return_lse: bool = False
    enable_gqa: bool = False
    mods: Literal["function", "nested", "partial", "method", "callable", "lambda"] = "function"
    joints: Literal["operators", "functions"] = "operators"
    computed: bool = False
