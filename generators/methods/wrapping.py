"""A module with projections around what the ranks share, wrapped by FSDP2 or DDP over all of them.

Each rank has its part of x, the batch over `data` and the length over the method's ranks, and all
have the same weights, whose gradients FSDP2 or DDP averages over the ranks. A function of autograd
stands around it, so that the weights are arguments, as they are of the reference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin
from attnfuzz.generators.methods.base import Function, MethodPlugin
from attnfuzz.generators.model.program import Mesh, Surround
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.surround import before

WEIGHTS = ("wq", "wk", "wv", "wo")


def wrapped(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, method: MethodPlugin[Any]
) -> list[Function]:
    """The functions and classes that make up `attention(x, wq, wk, wv, wo, *masks)`."""
    mesh, masks = method.mesh(scene.program), inputs.arguments
    inner = replace(scene, program=replace(scene.program, surround=Surround()))
    *first, [head, *lines] = method.functions(inner, plugin, inputs, ["q", "k", "v", *masks])
    shared = [head.replace("attention(", "shared_attention(", 1), *lines]
    return [*first, shared, _block(scene, masks), _function(mesh, masks), _attention(mesh, masks)]


def _block(scene: Scene, masks: list[str]) -> Function:
    """The module."""
    given = ", ".join(["x", *masks])
    body = [
        "wq, wk, wv, wo = self.weights",
        *before(scene, plain=False),
        f"out = shared_attention({', '.join(['q', 'k', 'v', *masks])})",
        "return F.linear(out.transpose(1, 2).flatten(2), wo)",
    ]
    forward = [f"def forward(self, {given}):", *indented(body)]
    if scene.program.surround.checkpoint != "none":
        forward = [
            f"def forward(self, {given}):",
            f"    return checkpoint(self.attend, {given}, use_reentrant=False)",
            "",
            f"def attend(self, {given}):",
            *indented(body),
        ]
    return [
        "class Block(torch.nn.Module):",
        "    def __init__(self, *weights):",
        "        super().__init__()",
        "        self.weights = torch.nn.ParameterList(w.detach().clone() for w in weights)",
        "",
        *indented(forward),
    ]


def _function(mesh: Mesh, masks: list[str]) -> Function:
    """The function of autograd; gradients that are averaged are summed again."""
    made, grad = "DistributedDataParallel(Block(*weights))", "w.grad"
    if mesh.module == "fsdp":
        made, grad = "fully_shard(Block(*weights), mesh=MESH)", "w.grad.full_tensor()"
    total = f"{mesh.world_size} * {grad}" if mesh.world_size > 1 else grad
    nothing = "None, " * len(masks)
    return [
        "class Wrapped(torch.autograd.Function):",
        '    """The module, with gradients of its weights as of arguments."""',
        "",
        "    @staticmethod",
        f"    def forward(ctx, {', '.join(['x', *masks])}, *weights):",
        "        with torch.enable_grad():",
        f"            ctx.module, ctx.x = {made}, x.detach().requires_grad_()",
        f"            ctx.out = ctx.module({', '.join(['ctx.x', *masks])})",
        "        return ctx.out.detach()",
        "",
        "    @staticmethod",
        "    def backward(ctx, dout):",
        "        ctx.out.backward(dout)",
        f"        return ctx.x.grad, {nothing}*({total} for w in ctx.module.parameters())",
    ]


def _attention(mesh: Mesh, masks: list[str]) -> Function:
    """Whole tensors in and out."""
    parts = "[Shard(0), Shard(1)]" if mesh.data > 1 else "[Shard(1)]"
    return [
        f"def attention({', '.join(['x', *WEIGHTS, *masks])}):",
        f"    x = DTensor.from_local(x, MESH).redistribute(MESH, {parts}).to_local()",
        f"    out = Wrapped.apply({', '.join(['x', *masks, *WEIGHTS])})",
        f"    return DTensor.from_local(out, MESH, {parts}).full_tensor()",
    ]
