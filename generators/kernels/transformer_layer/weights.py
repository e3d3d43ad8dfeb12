"""The parameters of a transformer layer, by their names in torch and in programs."""

from __future__ import annotations

from attnfuzz.generators.kernels.transformer_layer.spec import TransformerLayer
from attnfuzz.generators.render.scene import Scene

Shapes = dict[str, tuple[int, ...]]

RENAMED = {
    "self_attn.": "", "multihead_attn.": "memory_", "_proj.": "_", "_proj": "",
    "linear1.weight": "weight1", "linear1.bias": "bias1", "linear2.weight": "weight2",
    "linear2.bias": "bias2", ".": "_",
}  # fmt: skip


def argument(parameter: str) -> str:
    """The name that a parameter has among the arguments: "memory_out_weight"."""
    for old, new in RENAMED.items():
        parameter = parameter.replace(old, new)
    return parameter


def of_layer(scene: Scene, spec: TransformerLayer) -> Shapes:
    """A layer's parameters and their shapes."""
    width, inner = scene.q_heads * scene.head_dim, spec.feedforward
    shapes: Shapes = {}
    for name in ("self_attn", *(("multihead_attn",) if spec.layer == "decoder" else ())):
        shapes[f"{name}.in_proj_weight"] = (3 * width, width)
        shapes[f"{name}.in_proj_bias"] = (3 * width,)
        shapes[f"{name}.out_proj.weight"] = (width, width)
        shapes[f"{name}.out_proj.bias"] = (width,)
    shapes |= {"linear1.weight": (inner, width), "linear1.bias": (inner,)}
    shapes |= {"linear2.weight": (width, inner), "linear2.bias": (width,)}
    for norm in ("norm1", "norm2", *(("norm3",) if spec.layer == "decoder" else ())):
        shapes |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    return {name: shape for name, shape in shapes.items() if spec.bias or "bias" not in name}


def final_norm(scene: Scene, spec: TransformerLayer) -> Shapes:
    """Those of the layer norm at a stack's end, if there is one."""
    width = scene.q_heads * scene.head_dim
    shapes: Shapes = {"norm.weight": (width,), "norm.bias": (width,)} if spec.final_norm else {}
    return {name: shape for name, shape in shapes.items() if spec.bias or "bias" not in name}
