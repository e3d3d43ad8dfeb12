"""How the kernel is reached: called as it is, or behind what libraries put around their kernels."""

from __future__ import annotations

from typing import Any

from attnfuzz.generators.kernels.base import WITHOUT_DEAD_ROWS, Body, Inputs, KernelPlugin
from attnfuzz.generators.render.devices import made_beside
from attnfuzz.generators.render.scene import Scene, indented, naming_extents

Function = list[str]

OUTPUTS = {
    "custom_op": (".contiguous()", "q.new_empty(*q.shape[:3], v.shape[3])"),
    "custom_op_bshd": (
        ".transpose(1, 2).contiguous().transpose(1, 2)",
        "q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)",
    ),
}
"""What gives a custom operator's result the strides that its fake kernel promises, and the latter:
contiguous, or as `[B, L, H, D]`."""


def integrated(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs
) -> tuple[list[Function], Body | None]:
    """The functions that stand around the kernel, and the call of the outermost in its place; None
    where it is called as it is."""
    style = scene.program.surround.integration
    if style == "direct":
        return [], None
    names = ["q", "k", "v", *inputs.arguments]
    body = _lines(plugin.call(scene, inputs), "")
    call = Body([f"kernel({', '.join(names)})"])
    if style in ("allow_in_graph", "disable"):
        return [_function("kernel", names, body, f"@torch.compiler.{style}")], call
    if style == "autograd_function":
        call = Body([f"Kernel.apply({', '.join(names)})"])
        return [_autograd_function(scene, plugin, inputs, names, body)], call
    return _custom_op(scene, plugin, inputs, names, style), call


def _lines(body: Body, suffix: str) -> list[str]:
    """The kernel as the body of a function of q, k and v."""
    result = body.result[0]
    if suffix:
        result = f"({result}){suffix}" if " " in result.split("(")[0] else f"{result}{suffix}"
    lines = [*body.statements, f"return {result}"]
    if body.contexts:
        lines = [f"with {', '.join(body.contexts)}:", *indented(lines)]
    return naming_extents(lines)


def _function(name: str, names: list[str], lines: list[str], decorator: str = "") -> Function:
    head = [decorator] if decorator else []
    return [*head, f"def {name}({', '.join(names)}):", *indented(lines)]


def _custom_op(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str], style: str
) -> list[Function]:
    """An operator with its fake kernel and, for training, its backward."""
    strides, empty = OUTPUTS[style]
    typed = ", ".join(f"{name}: torch.Tensor" for name in names)
    functions = [
        [
            '@torch.library.custom_op("kernels::attention", mutates_args=())',
            f"def kernel({typed}) -> torch.Tensor:",
            *indented(_lines(plugin.call(scene, inputs), strides)),
        ],
        _function("fake", names, [f"return {empty}"], "@kernel.register_fake"),
    ]
    if scene.program.training is not None:
        functions += [
            _function(
                "setup_context", ["ctx", "inputs", "output"], ["ctx.save_for_backward(*inputs)"]
            ),
            _function("backward", ["ctx", "dout"], _backward(scene, plugin, inputs, names)),
            ["kernel.register_autograd(backward, setup_context=setup_context)"],
        ]
    return functions


def _autograd_function(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str], body: list[str]
) -> Function:
    lines = ["class Kernel(torch.autograd.Function):", "    @staticmethod"]
    lines.append(f"    def forward(ctx, {', '.join(names)}):")
    if scene.program.training is not None:
        lines.append(f"        ctx.save_for_backward({', '.join(names)})")
    lines += indented(body, 2)
    if scene.program.training is None:
        return lines
    backward = _backward(scene, plugin, inputs, names)
    return [*lines, "", "    @staticmethod", "    def backward(ctx, dout):", *indented(backward, 2)]


def _backward(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
) -> list[str]:
    """The gradients in q, k and v, from the probabilities computed anew."""
    meaning = plugin.meaning(scene, inputs)
    scale = f"{meaning.scale} * " if meaning.scale else ""
    wrap = (lambda text: f"{scale}({text})") if scale else (lambda text: text)
    modify = made_beside("q", meaning.modify, scene.device)
    rest = ["None"] * (len(names) - 3)
    plain = ("probs = torch.softmax(scores, dim=-1)",)
    return [
        f"{', '.join(names)} = ctx.saved_tensors",
        *naming_extents([f"scores = {wrap('q @ k.mT')}", *modify]),
        *(WITHOUT_DEAD_ROWS if meaning.zero_dead_rows else plain),
        "dp = dout @ v.mT",
        "ds = probs * (dp - (dp * probs).sum(dim=-1, keepdim=True))",
        *([f"ds = ds.masked_fill({meaning.replaced}, 0)"] if meaning.replaced else []),
        f"return {', '.join([wrap('ds @ k'), wrap('ds.mT @ q'), 'probs.mT @ dout', *rest])}",
    ]
