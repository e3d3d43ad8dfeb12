"""Which programs of torch's transformer layers there are."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.modules import module_problems, unused_problems
from attnfuzz.generators.kernels.padding import OwnKeys, sees_first_key
from attnfuzz.generators.kernels.transformer_layer.spec import TransformerLayer
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene


def form_of_padding(kernel: TransformerLayer) -> str:
    """The form of every mask but the program's own: `bool` or `float`."""
    return "bool" if kernel.mask_form == "bool" else "float"


def undefined_at_padding(kernel: TransformerLayer) -> bool:
    """Whether a stack may give its source up at padding: as nested tensors, which have none."""
    stack = kernel.layer == "encoder" and kernel.num_layers > 0 and kernel.enable_nested_tensor
    return stack and kernel.key_padding and kernel.mode == "eval" and kernel.batch_first


def undefined_in_memory(kernel: TransformerLayer) -> bool:
    """Whether a transformer's source may be given up so: nothing may look at its padding then."""
    return (
        kernel.layer == "transformer" and not kernel.source_mask
        and any(undefined_at_padding(stack) for _, stack in kernel.stacks)
    )  # fmt: skip


def has_masks_of_its_own(kernel: TransformerLayer) -> bool:
    """Whether it has any mask but the program's."""
    of_source = kernel.source_mask or kernel.source_padding
    return kernel.key_padding or kernel.memory_mask or kernel.memory_padding or of_source


def looks_for_causal(p: Program, kernel: TransformerLayer) -> bool:
    """Whether compiled code would look at a mask's numbers, to see whether it is causal
    (`_detect_is_causal_mask` in nn/modules/transformer.py, "try to detect a causal mask")."""
    masked = p.mask is not None or kernel.source_mask
    return p.compile is not None and kernel.num_layers > 0 and masked


def problems(p: Program, kernel: TransformerLayer) -> Iterator[Problem]:
    """What of the program, or of its kernel's arguments, does not go together."""
    yield from module_problems(p)
    encoder = kernel.layer == "encoder"
    for key, q_len, kv_len in lengths(p):
        if not q_len or not kv_len:
            yield Problem(f"{key}.q_len", "expected lengths above 0 for transformer_layer")
        if encoder and q_len != kv_len:
            yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}) with an encoder")
    if p.shape.q_heads * p.shape.head_dim == 1:  # which torch gets wrong: pytorch#188375
        yield Problem("shape.head_dim", "expected more than one number for the layer norms")
    yield from unused_problems(p, "kernel.layer", ("q",) if encoder else ("q", "k"))
    if kernel.activation == "gelu_tanh" and not kernel.activation_module:
        yield Problem("kernel.activation_module", "expected true for gelu_tanh")
    if p.training is not None and kernel.activation == "relu" and not kernel.bias:
        yield Problem("kernel.activation", "expected gelu to train without bias: relu has a kink")
    yield from _argument_problems(p, kernel)
    if p.mask is None:
        yield from _without_mask_problems(kernel)
    else:
        yield from _mask_problems(p, kernel)
    if kernel.nested:
        yield from _nested_problems(p, kernel)


def _argument_problems(p: Program, kernel: TransformerLayer) -> Iterator[Problem]:
    """Arguments of another module than the program's."""
    encoder, stack = kernel.layer == "encoder", kernel.num_layers > 0
    for key, wrong in (
        ("final_norm", kernel.final_norm and not stack),
        ("enable_nested_tensor", not kernel.enable_nested_tensor and not (encoder and stack)),
        ("mask_check", not kernel.mask_check and not (encoder and stack)),
        ("memory_mask", kernel.memory_mask and encoder),
        ("memory_padding", kernel.memory_padding and encoder),
        ("memory_is_causal", kernel.memory_is_causal and not kernel.memory_mask),
        ("source_mask", kernel.source_mask and kernel.layer != "transformer"),
        ("source_padding", kernel.source_padding and kernel.layer != "transformer"),
    ):
        if wrong:
            yield Problem(f"kernel.{key}", "expected the default: this module has no such argument")
    if kernel.layer == "transformer":
        if not (stack and kernel.final_norm):
            yield Problem("kernel.final_norm", "expected true, and layers, with a transformer")
        if undefined_in_memory(kernel) and not kernel.memory_padding:
            yield Problem("kernel.memory_padding", "expected true: there is no memory at padding")
    if kernel.is_causal == "unsaid" and looks_for_causal(p, kernel):
        yield Problem("kernel.is_causal", "expected true or false: a stack looks at its mask")
    if not kernel.mask_check and p.compile is not None:
        yield Problem("kernel.mask_check", "expected true: nested tensors are not compiled")


def _without_mask_problems(kernel: TransformerLayer) -> Iterator[Problem]:
    if kernel.is_causal == "true":
        yield Problem("kernel.is_causal", "expected another: there is no mask to give a hint of")
    if kernel.mask_form in ("biased", "square"):
        yield Problem("kernel.mask_form", "expected bool or float: there is no mask")


def _mask_problems(p: Program, kernel: TransformerLayer) -> Iterator[Problem]:
    assert p.mask is not None
    causal = p.mask == Causal() and kernel.mask_form != "biased"
    if kernel.is_causal == "true" and not causal:
        yield Problem("kernel.is_causal", "expected another: the mask is not the causal one")
    if kernel.mask_form == "square" and (p.mask != Causal() or kernel.mask_rank == 3):
        yield Problem("kernel.mask_form", "expected another: the mask is not the causal one")
    if kernel.mask_rank == 2 and mask_axes(p.mask) & {"b", "h"}:
        yield Problem("kernel.mask_rank", "expected 3: the mask depends on b or h")
    if may_hide_everything(p.mask, OwnKeys.of(Scene(p))):
        yield Problem("mask", "expected one that leaves each query a key, plainly")
    if kernel.key_padding and not sees_first_key(p.mask):
        yield Problem("kernel.key_padding", "expected false: the mask may hide the first key")


def _nested_problems(p: Program, kernel: TransformerLayer) -> Iterator[Problem]:
    """The fast path alone takes nested tensors, without masks; torch.compile takes none."""
    for key, wrong in (
        ("kernel.layer", kernel.layer != "encoder"),
        ("kernel.mode", kernel.mode != "eval"),
        ("kernel.batch_first", not kernel.batch_first),
        ("kernel.bias", not kernel.bias),
        ("kernel.key_padding", kernel.key_padding),
        ("shape.q_heads", p.shape.q_heads % 2 == 1),
        ("mask", p.mask is not None),
        ("training", p.training is not None),
        ("compile", p.compile is not None),
    ):
        if wrong:
            yield Problem(key, "expected what the fast path takes, uncompiled, with nested")
