"""Which programs of `torch.nn.MultiheadAttention` there are."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.modules import module_problems, unused_problems
from attnfuzz.generators.kernels.multihead_attention.spec import MultiheadAttention
from attnfuzz.generators.kernels.padding import sees_first_key
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene


def problems(p: Program, kernel: MultiheadAttention) -> Iterator[Problem]:
    """What of the program, or of its kernel's arguments, does not go together."""
    yield from module_problems(p)
    for key, q_len, kv_len in lengths(p):
        if not q_len or not kv_len:
            yield Problem(f"{key}.q_len", "expected lengths above 0 for multihead_attention")
        if kernel.self_attention and q_len != kv_len:
            yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}) with self_attention")
    if kernel.self_attention:
        yield from unused_problems(p, "kernel.self_attention", ("q",))
    yield from _mask_problems(p, kernel)
    yield from _function_problems(p, kernel)
    if kernel.unbatched:
        yield from _unbatched_problems(p)
    if kernel.nested:
        yield from _nested_problems(p, kernel)


def _mask_problems(p: Program, kernel: MultiheadAttention) -> Iterator[Problem]:
    if kernel.is_causal and p.mask not in (None, Causal()):
        yield Problem("kernel.is_causal", "expected false: the mask is not the causal one")
    if kernel.is_causal and kernel.mask_form == "biased":
        yield Problem("kernel.is_causal", "expected false: the mask is more than the causal one")
    if kernel.is_causal and p.mask is None and kernel.mode == "eval":
        yield Problem("kernel.is_causal", "expected false: there is no mask to give a hint of")
    if p.mask is None:
        return
    extra_key = kernel.add_zero_attn or kernel.add_bias_kv
    if kernel.mask_rank == 2 and mask_axes(p.mask) & {"b", "h"}:
        yield Problem("kernel.mask_rank", "expected 3: the mask depends on b or h")
    if may_hide_everything(p.mask, Scene(p)) and not extra_key:
        yield Problem("mask", "expected one that leaves each query a key, plainly")
    if kernel.key_padding not in ("none", _padding_form(kernel)):
        yield Problem("kernel.key_padding", "expected none or that of mask_form")
    if kernel.key_padding != "none" and not (extra_key or sees_first_key(p.mask)):
        yield Problem("kernel.key_padding", "expected none: the mask may hide the first key")


def _padding_form(kernel: MultiheadAttention) -> str:
    return "bool" if kernel.mask_form == "bool" else "float"


def _function_problems(p: Program, kernel: MultiheadAttention) -> Iterator[Problem]:
    static = kernel.static != "none"
    if kernel.called == "module":
        for key, wrong in (("separate_weights", kernel.separate_weights), ("static", static)):
            if wrong:
                yield Problem(f"kernel.{key}", "expected the default: the module takes none")
        return
    if kernel.batch_first:
        yield Problem("kernel.batch_first", "expected false: the function takes [L, B, E]")
    if static and kernel.add_bias_kv:
        yield Problem("kernel.add_bias_kv", "expected false with static keys or values")
    if static and kernel.self_attention:
        yield Problem("kernel.static", "expected none with self_attention")
    if static and (
        p.shape.q_heads != p.shape.kv_heads or p.shape.v_head_dim not in (None, p.shape.head_dim)
    ):
        yield Problem("kernel.static", "expected none, or kv_heads and v_head_dim that are q's")


def _unbatched_problems(p: Program) -> Iterator[Problem]:
    if p.shape.batch != 1:
        yield Problem("shape.batch", "expected 1 with unbatched")
    if p.training is not None and p.training.grad_layout == "transposed":
        yield Problem("training.grad_layout", "expected another: the unbatched result is [L, E]")
    for i, call in enumerate(p.calls):
        if call.batch != 1:
            yield Problem(f"calls[{i}].batch", "expected 1 with unbatched")


def _nested_problems(p: Program, kernel: MultiheadAttention) -> Iterator[Problem]:
    """The fast path alone takes nested tensors, without masks; torch.compile takes none."""
    for key, wrong in (
        ("kernel.self_attention", not kernel.self_attention),
        ("kernel.mode", kernel.mode != "eval"),
        ("kernel.batch_first", not kernel.batch_first),
        ("kernel.bias", not kernel.bias),
        ("kernel.need_weights", kernel.need_weights != "none"),
        ("kernel.key_padding", kernel.key_padding != "none"),
        ("kernel.add_zero_attn", kernel.add_zero_attn),
        ("kernel.add_bias_kv", kernel.add_bias_kv),
        ("kernel.called", kernel.called != "module"),
        ("kernel.unbatched", kernel.unbatched),
        ("shape.q_heads", p.shape.q_heads % 2 == 1),
        ("mask", p.mask is not None),
        ("training", p.training is not None),
        ("compile", p.compile is not None),
    ):
        if wrong:
            yield Problem(key, "expected what the fast path takes, uncompiled, with nested")
