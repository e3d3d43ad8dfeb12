"""`reference`: the same meaning as `attention` with plain tensor operations."""

from __future__ import annotations

from typing import Any

from attnfuzz.generators.kernels.base import WITHOUT_DEAD_ROWS, Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.methods.registry import outputs_of
from attnfuzz.generators.render import dropout
from attnfuzz.generators.render.attention import layered, main_names, tangent_statement
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.surround import after, before


def reference(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
) -> list[list[str]]:
    """The functions that make up `reference(*names)`."""
    if p := plugin.dropout_p(scene.program.kernel):
        return [dropout.reference(scene, p, names)]
    transform = scene.program.transform
    outputs = outputs_of(scene)
    body = plugin.plain_body(scene, inputs)
    if body is None:
        lines = _softmax_attention(scene, plugin.meaning(scene, inputs), outputs)
    else:
        lines = _spelled_out(scene, plugin, body)
    signature = ", ".join(names)
    main = ", ".join(main_names(names))
    if transform == "vmap":
        at = next((i for i, line in enumerate(lines) if ".shape[" not in line), 0)
        lines.insert(at, "q = torch.stack((q, -q))")
    if transform in ("grad", "jvp"):
        lines[-1] = lines[-1].split(", scores.logsumexp")[0]
        lines = [f"def plain({main}):", *indented(lines), "", *_derivative(transform, main)]
    if scene.program.surround.layers == 1:
        return [[f"def reference({signature}):", *indented(lines)]]
    whole = layered(scene, names, f"plain({signature})")
    return [
        [f"def plain({signature}):", *indented(lines)],
        [f"def reference({signature}):", *indented(whole)],
    ]


def _derivative(transform: str, main: str) -> list[str]:
    """Statements that differentiate `plain` as the transform does `attend`."""
    if transform == "jvp":
        return [*tangent_statement(main), f"return torch.func.jvp(plain, ({main}), tangents)"]
    return [
        f"{main} = (t.detach().requires_grad_() for t in ({main}))",
        f"return torch.autograd.grad(plain({main}).square().sum(), ({main}))",
    ]


def _spelled_out(scene: Scene, plugin: KernelPlugin[Any], body: Body) -> list[str]:
    """The plug-in's own statements, with what is around the kernel; a derivative is that of the
    first result."""
    transform = scene.program.transform
    stacked = transform == "vmap"
    lines = [*before(scene, plain=True, stacked=stacked), *body.statements]
    out = after(scene, body.result[0], plain=True, stacked=stacked)
    further = [] if transform in ("grad", "jvp") else body.result[1:]
    return plugin.with_extents(scene, [*lines, f"return {', '.join([out, *further])}"])


def _softmax_attention(scene: Scene, meaning: Meaning, outputs: tuple[str, ...]) -> list[str]:
    """The body: softmax(scores) @ v, in the dtype of the arguments."""
    stacked = scene.program.transform == "vmap"
    lines = before(scene, plain=True, stacked=stacked)
    lines += meaning.prepare
    if scene.group > 1 and not meaning.prepare:
        repeated = f"t.repeat_interleave({scene.group}, dim=1) for t in (k, v)"
        lines.append(f"k, v = ({repeated})")
    scaled = f"{meaning.scale} * (q @ k.mT)" if meaning.scale else "q @ k.mT"
    lines.append(f"scores = {scaled}")
    lines += meaning.modify
    if meaning.zero_dead_rows:
        lines += WITHOUT_DEAD_ROWS
    heads, length = (-3, -2) if stacked else (1, 2)
    product = "probs @ v" if meaning.zero_dead_rows else "torch.softmax(scores, dim=-1) @ v"
    out = product
    if meaning.finish != "{out}":
        out = meaning.finish.format(out=f"({product})", heads=heads, length=length)
    elif (around := scene.program.surround).projections or around.epilogue != "none":
        out = after(scene, f"({product})", plain=True, stacked=stacked)
    lines.append(f"return {', '.join([out, *(meaning.further[name] for name in outputs[1:])])}")
    return scene.with_extents(lines)
