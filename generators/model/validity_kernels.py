"""Which combinations are programs at all: what each kernel needs of the rest of its program."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.specs import (
    FlashAttn,
    Flex,
    Function,
    Handwritten,
    KVCache,
    NpuFusionAttention,
    Sdpa,
)
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program

SMALLEST_SCALE = 1e-9
"""Its inverse is written down, too."""

FLASH_ATTN_DTYPES = ("float16",)
"""On a CPU: flash_attn takes bfloat16 too, but Triton's interpreter has no matrix product of it."""


def _sdpa(p: Program) -> Iterator[Problem]:
    kernel = p.kernel
    if not isinstance(kernel, Sdpa):
        return
    if kernel.mask_form == "is_causal":
        if p.mask != Causal():
            yield Problem("kernel.mask_form", "expected bool or float: is_causal is Causal only")
        return
    if kernel.mask_requires_grad and kernel.mask_form != "float":
        yield Problem("kernel.mask_requires_grad", "expected false: only a float mask has one")
    if p.mask is None:
        return
    if len(set(kernel.broadcast)) != len(kernel.broadcast):
        yield Problem("kernel.broadcast", f"expected distinct axes, got {kernel.broadcast}")
    for axis in kernel.broadcast:
        if axis in mask_axes(p.mask):
            yield Problem("kernel.broadcast", f"expected no {axis}: the mask depends on it")
    for dropped in ("b", "h")[: 4 - kernel.mask_rank]:
        if dropped not in kernel.broadcast:
            yield Problem(
                "kernel.mask_rank", f"expected 4, or {dropped} among the axes that are broadcast"
            )


def _flex(p: Program) -> Iterator[Problem]:
    if not isinstance(p.kernel, Flex):
        return
    spec = p.kernel.block_mask
    if spec is None:
        if p.mask is not None:
            yield Problem("kernel.block_mask", "expected one: flex takes its mask as a BlockMask")
        return
    if p.mask is None:
        yield Problem("kernel.block_mask", "expected none: there is no mask")
        return
    axes = mask_axes(p.mask)
    if "b" in axes and not spec.batch:
        yield Problem("kernel.block_mask.batch", "expected true: the mask depends on b")
    if "h" in axes and not spec.heads:
        yield Problem("kernel.block_mask.heads", "expected true: the mask depends on h")
    if spec.spare_batch and not spec.batch:
        yield Problem("kernel.block_mask.spare_batch", "expected 0: the mask is built for no batch")


def _handwritten(p: Program) -> Iterator[Problem]:
    kernel = p.kernel
    if not isinstance(kernel, Handwritten):
        return
    if kernel.scale == 0 and kernel.scaling in ("div", "query_div"):
        yield Problem("kernel.scale", "expected not 0: it is divided by its inverse")
    if kernel.scale and abs(kernel.scale) < SMALLEST_SCALE:
        yield Problem("kernel.scale", f"expected 0, or {SMALLEST_SCALE} or more either way")
    if kernel.scale is not None and kernel.scale <= 0 and kernel.scaling == "both":
        yield Problem("kernel.scale", f"expected > 0 for its root, got {kernel.scale}")
    if kernel.softmax == "exp_sum":
        for key, _, kv_len in lengths(p):
            if kv_len == 0:
                yield Problem(f"{key}.kv_len", "expected > 0: exp_sum takes a maximum over keys")


def _function(p: Program) -> Iterator[Problem]:
    if not isinstance(p.kernel, Function):
        return
    if p.mask not in (None, Causal()):
        yield Problem("mask", "expected none or causal: a function takes no other mask")
    if p.shape.q_heads != p.shape.kv_heads:
        yield Problem("shape.q_heads", f"expected kv_heads ({p.shape.kv_heads}) for a function")


def _flash_attn(p: Program) -> Iterator[Problem]:
    kernel = p.kernel
    if not isinstance(kernel, FlashAttn):
        return
    for name in ("q", "k", "v"):
        if getattr(p, name).dtype not in FLASH_ATTN_DTYPES:
            yield Problem(f"{name}.dtype", "expected float16 for flash_attn on a CPU")
    if p.mask is not None:
        yield Problem("mask", "expected none: flash_attn has causal and window")
    for key, wrong in (
        ("transform", p.transform != "none"),
        ("autocast", p.autocast is not None),
        ("packed", p.packed != "none"),
    ):
        if wrong:
            yield Problem(key, "expected none with flash_attn")
    if p.shape.v_head_dim not in (None, p.shape.head_dim):
        yield Problem("shape.v_head_dim", "expected head_dim for flash_attn")
    if kernel.function == "qkvpacked":
        yield from _flash_attn_qkvpacked(p)
    if kernel.function == "varlen":
        yield from _flash_attn_varlen(p)
    if kernel.function == "kvcache":
        yield from _flash_attn_kvcache(p, kernel.cache)


def _flash_attn_qkvpacked(p: Program) -> Iterator[Problem]:
    if p.shape.q_heads != p.shape.kv_heads:
        yield Problem("shape.q_heads", f"expected kv_heads ({p.shape.kv_heads}) for qkvpacked")
    for key, q_len, kv_len in lengths(p):
        if q_len != kv_len:
            yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}) for qkvpacked")


def _flash_attn_varlen(p: Program) -> Iterator[Problem]:
    calls = (("shape", p.shape.batch), *((f"calls[{i}]", c.batch) for i, c in enumerate(p.calls)))
    for key, batch in calls:
        if batch != 1:
            yield Problem(f"{key}.batch", "expected 1 for varlen: it has sequences")


def _flash_attn_kvcache(p: Program, cache: KVCache) -> Iterator[Problem]:
    if p.training is not None:
        yield Problem("training", "expected none: flash_attn_with_kvcache has no gradients")
    if bool(cache.append) + cache.ragged + bool(cache.page_size) > 1:
        yield Problem("kernel.cache", "expected one of append, ragged and page_size")
    for key, _, kv_len in lengths(p):
        if kv_len < cache.append:
            yield Problem(f"{key}.kv_len", f"expected append ({cache.append}) or more")
        if cache.page_size and (kv_len == 0 or kv_len % cache.page_size):
            yield Problem(f"{key}.kv_len", f"expected a multiple of {cache.page_size}, the page")


def _npu_fusion_attention(p: Program) -> Iterator[Problem]:
    kernel = p.kernel
    if not isinstance(kernel, NpuFusionAttention):
        return
    if p.transform != "none":
        yield Problem("transform", "expected none with npu_fusion_attention")
    if p.shape.v_head_dim not in (None, p.shape.head_dim):
        yield Problem("shape.v_head_dim", "expected head_dim for npu_fusion_attention")
    own, packed = kernel.sparse_mode > 1, kernel.input_layout == "TND"
    if p.mask is not None and own:
        yield Problem("mask", f"expected none: sparse_mode {kernel.sparse_mode} has its own")
    if p.mask is not None and packed:
        yield Problem("mask", "expected none for TND")
    if p.mask is None and kernel.sparse_mode == 1:
        yield Problem("mask", "expected one: sparse_mode 1 needs it")
    axes = mask_axes(p.mask) if p.mask is not None else frozenset()
    for axis, shapes in (("b", ("B1SS", "BNSS")), ("h", ("BNSS",))):
        if axis in axes and kernel.mask_shape not in shapes:
            yield Problem(
                "kernel.mask_shape", f"expected {' or '.join(shapes)}: it depends on {axis}"
            )
    for key, q_len, kv_len in lengths(p):
        if not q_len or not kv_len:
            yield Problem(f"{key}.q_len", "expected lengths above 0 for npu_fusion_attention")
        if kernel.sparse_mode in (3, 4) and q_len > kv_len:
            yield Problem(f"{key}.q_len", "expected kv_len at most: each query has to see a key")


OF_KERNELS = (_sdpa, _flex, _handwritten, _flash_attn, _npu_fusion_attention, _function)
