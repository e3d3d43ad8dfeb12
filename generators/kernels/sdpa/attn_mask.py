"""The argument `attn_mask` of SDPA: what may be handed over, and the statements that make it."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Inputs
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import AllTrue, Causal
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.dense import dense_mask, full_shape, hidden_scores
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import Size, commas

BIASES = ("upper_left", "lower_right")
"""The forms that are tensor subclasses of `torch.nn.attention.bias`."""

LEADING = ("b", "h", "q_idx")


def inputs(scene: Scene, spec: Sdpa) -> Inputs:
    """The argument `attn_mask`, if there is one: `is_causal` needs none."""
    mask = scene.program.mask
    if mask is None or spec.mask_form == "is_causal":
        return Inputs()
    if spec.mask_form in BIASES:
        lengths = commas((scene.q_len, scene.kv_len))
        return Inputs([f"attn_mask = causal_{spec.mask_form}({lengths})"], ["attn_mask"])
    shape = mask_shape(scene, spec)
    if spec.mask_form == "bool":
        statements = [*dense_mask(mask, scene, "attn_mask", shape), *_laid_out(scene, spec)]
        return Inputs(statements, ["attn_mask"])
    dtype = scene.program.q.dtype if spec.mask_dtype == "query" else spec.mask_dtype
    numbers = "randn" if spec.mask_bias else "zeros"
    additive = f"torch.{numbers}({commas(shape)}{dtype_argument(dtype)})"
    statements = []
    if not (spec.mask_bias and mask == AllTrue()):
        statements = dense_mask(mask, scene, "mask", shape)
        additive += f".masked_fill(~mask, {hidden_scores(spec.mask_fill, dtype)})"
    statements += [f"attn_mask = {additive}", *_laid_out(scene, spec)]
    learnable = spec.mask_requires_grad and scene.program.training is not None
    if learnable:
        statements[-1] += ".requires_grad_()"
    names = ["attn_mask"] if learnable else []
    return Inputs(statements, ["attn_mask"], names, ["attn_mask"])


def mask_shape(scene: Scene, spec: Sdpa) -> tuple[Size, ...]:
    """The last `mask_rank` of `[B, Hq, Lq, Lkv]`, with 1 where the mask is broadcast."""
    return full_shape(scene, spec.broadcast)[4 - spec.mask_rank :]


def _laid_out(scene: Scene, spec: Sdpa) -> list[str]:
    """The statement that gives the mask its strides."""
    match spec.mask_layout:
        case "transposed":
            return ["attn_mask = attn_mask.mT.contiguous().mT"]
        case "strided":
            return ["attn_mask = torch.stack((attn_mask, attn_mask), dim=-1)[..., 0]"]
        case "expanded":
            full = full_shape(scene, ())[4 - spec.mask_rank :]
            return [f"attn_mask = attn_mask.expand({commas(full)})"]
    return []


def problems(p: Program, kernel: Sdpa) -> Iterator[Problem]:
    """What the mask that is handed over needs of the program and is not so."""
    if kernel.mask_form in ("is_causal", "upper_left") and p.mask != Causal():
        yield Problem(
            "kernel.mask_form", f"expected bool or float: {kernel.mask_form} is Causal only"
        )
    if kernel.mask_form == "lower_right":
        for key, q_len, kv_len in lengths(p):
            if p.mask != Causal(offset=kv_len - q_len):
                sentence = f"expected a Causal mask of offset kv_len - q_len ({kv_len - q_len})"
                yield Problem("mask" if key == "shape" else key, f"{sentence} for lower_right")
    if kernel.mask_form != "float":
        for name, wrong in (
            ("mask_requires_grad", kernel.mask_requires_grad and kernel.mask_form != "is_causal"),
            ("mask_bias", kernel.mask_bias),
            ("mask_dtype", kernel.mask_dtype != "query"),
            ("mask_fill", kernel.mask_fill != "-inf"),
        ):
            if wrong:
                yield Problem(f"kernel.{name}", "expected the default: it is of a float mask")
    if kernel.mask_dtype != "query" and kernel.dropout_p:
        yield Problem("kernel.mask_dtype", "expected query: dropout is judged in q's dtype")
    if kernel.mask_fill == "finfo_min" and not keeps_least(p, kernel):
        yield Problem(
            "kernel.mask_fill", "expected -inf: float16, and casts, leave no least number"
        )
    if not is_plain_tensor(kernel):
        if kernel.mask_layout != "contiguous":
            yield Problem("kernel.mask_layout", "expected contiguous: no plain tensor is given")
        return
    if kernel.mask_layout == "transposed" and kernel.mask_rank == 1:
        yield Problem("kernel.mask_layout", "expected another: a mask of rank 1 has no transpose")
    if kernel.mask_layout == "expanded" and p.in_place:
        yield Problem("kernel.mask_layout", "expected another: what expands cannot be written")
    if p.mask is not None:
        yield from _broadcasting(p, kernel)


def is_plain_tensor(kernel: Sdpa) -> bool:
    """Whether a mask is handed over as a bool or float tensor."""
    return kernel.mask_form in ("bool", "float")


def keeps_least(p: Program, kernel: Sdpa) -> bool:
    """Whether the least number of the mask's dtype stays finite, and far below all scores, on every
    path: casts make it infinite, and in float16 a score may."""
    same = p.q.dtype == p.k.dtype == p.v.dtype and kernel.mask_dtype == "query"
    return same and p.autocast is None and p.q.dtype != "float16"


def _broadcasting(p: Program, kernel: Sdpa) -> Iterator[Problem]:
    assert p.mask is not None
    if len(set(kernel.broadcast)) != len(kernel.broadcast):
        yield Problem("kernel.broadcast", f"expected distinct axes, got {kernel.broadcast}")
    for axis in kernel.broadcast:
        if axis in mask_axes(p.mask):
            yield Problem("kernel.broadcast", f"expected no {axis}: the mask depends on it")
    for dropped in LEADING[: 4 - kernel.mask_rank]:
        if dropped not in kernel.broadcast:
            yield Problem(
                "kernel.mask_rank", f"expected 4, or {dropped} among the axes that are broadcast"
            )


def fitted(p: Program, kernel: Sdpa) -> Sdpa:
    """The kernel with what its mask no longer allows set back."""
    plain = Sdpa()
    if p.mask is None:
        return changed(
            kernel, mask_form=plain.mask_form, broadcast=plain.broadcast,
            mask_rank=plain.mask_rank, mask_requires_grad=plain.mask_requires_grad,
            mask_bias=plain.mask_bias, mask_dtype=plain.mask_dtype, mask_layout=plain.mask_layout,
            mask_fill=plain.mask_fill,
        )  # fmt: skip
    if kernel.mask_form in ("is_causal", "upper_left") and p.mask != Causal():
        kernel = changed(kernel, mask_form="bool")
    if kernel.mask_form == "lower_right" and any(problems(p, kernel)):
        kernel = changed(kernel, mask_form="bool")
    if kernel.mask_form != "float":
        kernel = changed(kernel, mask_bias=plain.mask_bias, mask_dtype=plain.mask_dtype)
    if kernel.dropout_p:
        kernel = changed(kernel, mask_dtype=plain.mask_dtype)
    if kernel.mask_form != "float" or not keeps_least(p, kernel):
        kernel = changed(kernel, mask_fill=plain.mask_fill)
    if not is_plain_tensor(kernel):
        kernel = changed(kernel, mask_layout=plain.mask_layout)
    depends = mask_axes(p.mask)
    broadcast = tuple(axis for axis in kernel.broadcast if axis not in depends)
    rank = kernel.mask_rank if broadcast == kernel.broadcast else 4
    if rank == 1 and kernel.input_rank == 4:
        rank = 2
    return changed(kernel, broadcast=broadcast, mask_rank=rank)
