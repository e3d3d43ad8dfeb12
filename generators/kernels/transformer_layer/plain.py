"""What a transformer layer means, in plain tensor operations."""

from __future__ import annotations

from attnfuzz.generators.kernels.base import Body, Inputs
from attnfuzz.generators.kernels.transformer_layer import rules, weights
from attnfuzz.generators.kernels.transformer_layer.spec import TransformerLayer
from attnfuzz.generators.render.scene import Scene, indented


def plain_body(scene: Scene, spec: TransformerLayer, inputs: Inputs) -> Body:
    """Vaswani et al. (2017), figure 1: attention, a decoder's attention to the memory, and two
    linear layers, each added to its input with a layer norm after it, or before (`norm_first`)."""
    lines = [*_attend(scene, spec), "", *_norm(spec), ""]
    if spec.layer == "transformer":
        (prefix, source), (_, target) = spec.stacks
        lines += [*weights.split(scene, spec), "x = k.transpose(1, 2).flatten(2)"]
        lines += [*_stack(scene, source, prefix, inputs), "memory = x"]
        lines += ["x = q.transpose(1, 2).flatten(2)", *_stack(scene, target, "", inputs)]
        return Body([_result(spec)], lines)
    lines.append("x = q.transpose(1, 2).flatten(2)")
    if spec.layer == "decoder":
        lines.append("memory = k.transpose(1, 2).flatten(2)")
    lines += [*weights.split(scene, spec), *_stack(scene, spec, "", inputs)]
    if spec.nested:
        lines.append(f"padded = torch.arange({scene.q_len}) >= lengths[:, None]")
    return Body([_result(spec)], lines)


def _stack(scene: Scene, spec: TransformerLayer, prefix: str, inputs: Inputs) -> list[str]:
    """Statements for all layers of a stack, of x and a memory."""
    layer = _layer(scene, spec, prefix, inputs)
    if spec.num_layers:
        layer = [f"for i in range({spec.num_layers}):", *indented(layer)]
    return [*layer, *([f"x = norm(x, *{prefix}final_norm)"] if spec.final_norm else [])]


def _result(spec: TransformerLayer) -> str:
    if spec.nested:
        return "x.masked_fill(padded[..., None], 0)"
    if rules.undefined_at_padding(spec):
        padded = "key_padding_mask[..., None]"
        padded = padded if rules.form_of_padding(spec) == "bool" else f"{padded} != 0"
        return f"x.masked_fill({padded}, 0)"
    return "x" if spec.batch_first else "x.transpose(0, 1)"


def _attend(scene: Scene, spec: TransformerLayer) -> list[str]:
    """The definition of attention from x `[B, Lq, E]` to y `[B, Lkv, E]`."""
    biases = ("in_bias", "out_bias") if spec.bias else ()
    weights = ("in_weight", *biases[:1], "out_weight", *biases[1:])
    together = ", ".join(f"{name}.chunk(3)" for name in ("in_weight", *biases[:1]))
    linear = "t, w, b" if spec.bias else "t, w"
    projected = f"F.linear({linear}).unflatten(2, ({scene.q_heads}, {scene.head_dim}))"
    lines = [
        f"parts = zip((x, y, y), {together})",
        f"q, k, v = ({projected}.transpose(1, 2) for {linear} in parts)",
        f"scores = {scene.scale_text(None)} * (q @ k.mT)",
    ]
    masked = rules.has_masks_of_its_own(spec) or spec.nested
    if masked or scene.program.mask is not None:
        hide = spec.nested or spec.mask_form == "bool"
        text = 'scores.masked_fill(mask, float("-inf"))' if hide else "scores + mask"
        lines += ["for mask in masks:", f"    scores = {text}"]
        weights = (*weights, "*masks")
    out_bias = ", out_bias" if spec.bias else ""
    lines.append("out = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)")
    lines.append(f"return F.linear(out, out_weight{out_bias})")
    return [f"def attend(x, y, {', '.join(weights)}):", *indented(lines)]


def _norm(spec: TransformerLayer) -> list[str]:
    """The definition of a layer norm."""
    lines = [
        "x = x - x.mean(dim=-1, keepdim=True)",
        "x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)",
        f"return x * weight{' + bias' if spec.bias else ''}",
    ]
    return [f"def norm(x, weight{', bias' if spec.bias else ''}):", *indented(lines)]


def _normed(text: str, number: int, spec: TransformerLayer, prefix: str) -> str:
    """The layer's norm of that number, from 0, of `text`."""
    each = len(weights.each_norm(spec))
    at = "i, " if spec.num_layers else ""
    return f"norm({text}, *{prefix}norms[{at}{number * each}:{(number + 1) * each}])"


def _layer(scene: Scene, spec: TransformerLayer, prefix: str, inputs: Inputs) -> list[str]:
    """Statements for one layer, of x and a memory."""
    masks = {
        "attn_mask": "attn_mask",
        "key_padding_mask": "key_padding_mask[:, None, None]",
        "memory_mask": "memory_mask",
        "memory_key_padding_mask": "memory_key_padding_mask[:, None, None]",
    }
    if spec.mask_rank == 3:
        masks["attn_mask"] = f"attn_mask.unflatten(0, ({scene.batch}, {scene.q_heads}))"
    if prefix:
        masks = {
            "source_mask": "source_mask",
            "source_key_padding_mask": "source_key_padding_mask[:, None, None]",
        }
    given = {name: text for name, text in masks.items() if name in inputs.arguments}
    own = [text for name, text in given.items() if not name.startswith("memory")]
    if spec.nested:
        own.append(f"(torch.arange({scene.q_len}) >= lengths[:, None])[:, None, None]")
    of_memory = [text for name, text in given.items() if name.startswith("memory")]
    x = "y" if spec.norm_first else "x"
    blocks = [_attention(x, x, prefix, own, spec)]
    if spec.layer == "decoder":
        blocks.append(_attention(x, "memory", "memory_", of_memory, spec))
    blocks.append(_feedforward(x, spec, prefix))
    lines = []
    for number, block in enumerate(blocks):
        if spec.norm_first:
            lines += [f"y = {_normed('x', number, spec, prefix)}", f"x = x + {block}"]
        else:
            lines += [f"z = x + {block}", f"x = {_normed('z', number, spec, prefix)}"]
    return lines


def _attention(x: str, y: str, prefix: str, masks: list[str], spec: TransformerLayer) -> str:
    at = "[i]" if spec.num_layers else ""
    names = ["in_weight", "in_bias", "out_weight", "out_bias"]
    given = [f"{prefix}{name}{at}" for name in names if spec.bias or name.endswith("weight")]
    return f"attend({', '.join([x, y, *given, *masks])})"


def _feedforward(x: str, spec: TransformerLayer, prefix: str) -> str:
    at = "[i]" if spec.num_layers else ""
    first, second = (f", {prefix}bias{n}{at}" if spec.bias else "" for n in (1, 2))
    name, _, tanh = spec.activation.partition("_")
    approximate = ', approximate="tanh"' if tanh else ""
    inner = f"F.{name}(F.linear({x}, {prefix}weight1{at}{first}){approximate})"
    return f"F.linear({inner}, {prefix}weight2{at}{second})"
