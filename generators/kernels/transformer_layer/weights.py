"""The parameters of transformer layers: what they are among a program's arguments.

Functions are about one layer or stack; a transformer has `stacks` of them. Matrices are arguments
of their own; biases are the parts of one argument, and the layer norms' parameters the rows of
another. For a stack each has a first dimension, of its layers.
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
    """The statements that take `biases` apart."""
    lines = []
    for prefix, stack in spec.stacks:
        parts = biases(scene, stack)
        names = ", ".join(f"{prefix}{name}" for name in parts)
        sizes = tuple_of(tuple(parts.values()))
        lines += [f"{names} = {prefix}biases.split({sizes}, dim=-1)"] if parts else []
    return lines


def norms(spec: TransformerLayer) -> int:
    """How many layer norms a layer has."""
    return 2 if spec.layer == "encoder" else 3


def each_norm(spec: TransformerLayer) -> tuple[str, ...]:
    """The parameters of a layer norm: rows of `norms`, in this order."""
    return ("weight", "bias") if spec.bias else ("weight",)


def parameters(scene: Scene, spec: TransformerLayer, prefix: str) -> dict[str, str]:
    """A layer's parameters by torch's names, and expressions for them, with the dimension of a
    stack."""
    named = {
        _torch_name(name): f"{prefix}{name}"
        for name in (*matrices(scene, spec), *biases(scene, spec))
    }
    at = ":, " if spec.num_layers else ""
    rows = [f"norm{i}.{what}" for i in range(1, norms(spec) + 1) for what in each_norm(spec)]
    return named | {name: f"{prefix}norms[{at}{row}]" for row, name in enumerate(rows)}


def named(scene: Scene, spec: TransformerLayer) -> list[str]:
    """Statements that set `parameters`, all of the module's by torch's names."""
    lines: list[str] = []
    for prefix, stack in spec.stacks:
        entries = parameters(scene, stack, prefix).items()
        given = ", ".join(f'"{name}": {value}' for name, value in entries)
        if not spec.num_layers:
            return [f"parameters = {{{given}}}"]
        within = f"{stack.layer}." if spec.layer == "transformer" else ""
        loops = f"for i in range({spec.num_layers}) for name, t in layer.items()"
        joined = "|=" if lines else "="
        lines.append(f"layer = {{{given}}}")
        lines.append(f'parameters {joined} {{f"{within}layers.{{i}}.{{name}}": t[i] {loops}}}')
        if spec.final_norm:
            rows = enumerate(each_norm(spec))
            norm = (f'"{within}norm.{what}": {prefix}final_norm[{row}]' for row, what in rows)
            lines.append(f"parameters |= {{{', '.join(norm)}}}")
    return lines


def _torch_name(name: str) -> str:
    what = "weight" if "weight" in name else "bias"
    if name[-1].isdigit():
        return f"linear{name[-1]}.{what}"
    attention = "multihead_attn" if name.startswith("memory") else "self_attn"
    return f"{attention}.in_proj_{what}" if "in_" in name else f"{attention}.out_proj.{what}"
