"""The parameters of transformer layers: what they are among a program's arguments.

Matrices are arguments of their own; biases are the parts of one argument, and the layer norms'
parameters the rows of another. For a stack each has a first dimension, of its layers.
"""

from __future__ import annotations

from attnfuzz.generators.kernels.transformer_layer.spec import TransformerLayer
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import tuple_of

Shape = tuple[int, ...]


def matrices(scene: Scene, spec: TransformerLayer) -> dict[str, Shape]:
    """A layer's matrices by their names, without the dimension of a stack."""
    width, inner = scene.q_heads * scene.head_dim, spec.feedforward
    shapes: dict[str, Shape] = {"in_weight": (3 * width, width), "out_weight": (width, width)}
    if spec.layer == "decoder":
        shapes |= {f"memory_{name}": shape for name, shape in shapes.items()}
    return shapes | {"weight1": (inner, width), "weight2": (width, inner)}


def biases(scene: Scene, spec: TransformerLayer) -> dict[str, int]:
    """A layer's biases and how long they are, in their order in `biases`; none without `bias`."""
    lengths = {
        name.replace("weight", "bias"): shape[0] for name, shape in matrices(scene, spec).items()
    }
    return lengths if spec.bias else {}


def split(scene: Scene, spec: TransformerLayer) -> list[str]:
    """A statement that takes `biases` apart."""
    parts = biases(scene, spec)
    sizes = tuple_of(tuple(parts.values()))
    return [f"{', '.join(parts)} = biases.split({sizes}, dim=-1)"] if parts else []


def norms(spec: TransformerLayer) -> int:
    """How many layer norms a layer has."""
    return 2 if spec.layer == "encoder" else 3


def each_norm(spec: TransformerLayer) -> tuple[str, ...]:
    """The parameters of a layer norm: rows of `norms`, in this order."""
    return ("weight", "bias") if spec.bias else ("weight",)


def parameters(scene: Scene, spec: TransformerLayer) -> dict[str, str]:
    """A layer's parameters by torch's names, and expressions for them, with the dimension of a
    stack."""
    named = {
        _torch_name(name): name for name in (*matrices(scene, spec), *biases(scene, spec))
    }  # fmt: skip
    at = ":, " if spec.num_layers else ""
    rows = [f"norm{i}.{what}" for i in range(1, norms(spec) + 1) for what in each_norm(spec)]
    return named | {name: f"norms[{at}{row}]" for row, name in enumerate(rows)}


def _torch_name(name: str) -> str:
    what = "weight" if "weight" in name else "bias"
    if name[-1].isdigit():
        return f"linear{name[-1]}.{what}"
    attention = "multihead_attn" if name.startswith("memory") else "self_attn"
    return f"{attention}.in_proj_{what}" if "in_" in name else f"{attention}.out_proj.{what}"
