"""What computes the attention: the data of each kernel. Behaviour is in the plug-in beside it."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from attnfuzz.generators.model.indices import STRICT
from attnfuzz.generators.model.options import KernelOptions

Scale = Annotated[float, Field(allow_inf_nan=False, ge=-1e4, le=1e4)]
BlockEdge = Annotated[int, Field(ge=1, le=1024)]


def _importable(target: str) -> str:
    module, colon, name = target.partition(":")
    names = [*module.split("."), name]
    if (
        not colon
        or module == "__future__"
        or any(not _NAME.fullmatch(one) or keyword.iskeyword(one) for one in names)
    ):
        raise PydanticCustomError("target", "expected module:function, as Python names them")
    return target


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Target = Annotated[str, Field(max_length=200), AfterValidator(_importable)]
Tockens = Annotated[int, Field(ge=0, le=2147483647)]
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


@dataclass(frozen=True, kw_only=True)
class Flex:
    """`torch.nn.attention.flex_attention.flex_attention`. Without a `block_mask` the program's
    mask must be None. `return_lse` also returns the log-sum-exp `[B, Hq, Lq]`, float32. `mods`: how
    mask_mod and score_mod are written: a `function` (a closure where it captures tables), a
    `nested` function that calls another, a `partial`, a bound `method` or a `callable` object."""

    __pydantic_config__ = STRICT
    kind: Literal["flex"] = "flex"
    scale: Scale | None = None
    block_mask: BlockMaskSpec | None = None
    kernel_options: KernelOptions = field(default_factory=dict)
    return_lse: bool = False
    enable_gqa: bool = False
    mods: Literal["function", "nested", "partial", "method", "callable"] = "function"


@dataclass(frozen=True, kw_only=True)
class Handwritten:
    """Attention out of plain tensor operations, in the ways models write it.

    `product`: how q @ k.T is spelled; `baddbmm` and `bmm` work on 3-D `[B * H, L, D]`. `scaling`:
    where the scale goes: multiplied or divided, on q, on k (`key`), on both as its root, or on the
    product; `scale_as` a Python constant or a 0-d tensor. `masking`: `add` a float mask (0 or
    `fill`), or `masked_fill`/`where` with `fill`. `softmax_dim`: the last dimension of `q k^T`, or
    (`transposed`) of k q^T softmaxed over dimension -2 and transposed back before `@ v`.
    `softmax_dtype`: upcast around the softmax as Llama-style models do. `dropout`: `F.dropout(p,
    training=False)`. GQA is by `repeat_interleave` or `expand`. `rank5` puts heads into
    `[B, Hkv, G, L, D]` and lets matmul broadcast over G.
    """

    __pydantic_config__ = STRICT
    kind: Literal["handwritten"] = "handwritten"
    product: Literal["matmul", "einsum", "bmm", "baddbmm", "rank5"] = "matmul"
    transpose: Literal["transpose", "mT", "permute"] = "transpose"
    scaling: Literal["mul", "div", "query_mul", "query_div", "key_mul", "both", "none"] = "div"
    scale: Scale | None = None
    scale_as: Literal["constant", "tensor"] = "constant"
    masking: Literal["add", "masked_fill", "where"] = "masked_fill"
    fill: Literal["-inf", "finfo_min"] = "-inf"
    softmax: Literal["functional", "method", "module", "exp_sum"] = "functional"
    transposed: bool = False
    softmax_dtype: Literal["same", "float32"] = "same"
    dropout: bool = False
    gqa: Literal["repeat_interleave", "expand"] = "repeat_interleave"
    out_layout: Literal["bhld", "blhd", "merged"] = "bhld"


@dataclass(frozen=True, kw_only=True)
class Function:
    """A user's own attention function `target` = `module:name`, importable where the program
    runs (a `preload` file may define the module), called as `f(q, k, v)` with q, k, v
    `[B, H, L, D]`; it must mean softmax(scale q k^T [+ causal mask]) v, scale 1/sqrt(D)."""

    __pydantic_config__ = STRICT
    kind: Literal["function"] = "function"
    target: Target


@dataclass(frozen=True, kw_only=True)
class KVCache:
    """What `flash_attn_with_kvcache` is told of its cache, whose extent is Lkv: `append`: the last
    keys and values, that many, are new ones that the call writes into it; `ragged`: each batch
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


@dataclass(frozen=True, kw_only=True)
class NpuFusionAttention:
    """`torch_npu.npu_fusion_attention`, with its documented meaning. `input_layout`: how q, k and v
    are handed over (B batch, N heads, S length, D head_dim, H = N * D, T the tokens of all batch
    entries, one after the other).

    `sparse_mode` 0 and 1 take the program's mask as `atten_mask`, True where nothing is seen, of a
    `mask_shape` of the four that there are (1 needs a mask). The others have masks of their own,
    and take the triangle of 2048 x 2048 that their documentation asks for: 2 is causal from the
    top left, 3 from the bottom right, 4 a band around that diagonal, `pre_tockens` to its left and
    `next_tockens` to its right."""

    __pydantic_config__ = STRICT
    kind: Literal["npu_fusion_attention"] = "npu_fusion_attention"
    input_layout: Literal["BNSD", "BSND", "BSH", "SBH", "TND"] = "BNSD"
    scale: Scale | None = None
    sparse_mode: Literal[0, 1, 2, 3, 4] = 0
    pre_tockens: Tockens = 2147483647
    next_tockens: Tockens = 2147483647
    mask_shape: Literal["11SS", "SS", "B1SS", "BNSS"] = "11SS"


Kernel = Annotated[
    Sdpa | Flex | Handwritten | FlashAttn | NpuFusionAttention | Function,
    Field(discriminator="kind"),
]


def imported_by(kernel: Kernel) -> str | None:
    """The `module:name` that a program with this kernel imports and calls, if it names one."""
    return kernel.target if isinstance(kernel, Function) else None
