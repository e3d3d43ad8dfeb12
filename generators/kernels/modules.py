"""What kernels that are modules of torch.nn share: their weights are inputs of the program, and
little stands around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.base import Inputs, K, KernelPlugin
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program, Surround
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import commas


class ModulePlugin(KernelPlugin[K]):
    """A kernel that is a module of torch.nn."""

    def keeps_layout(self, kernel: K) -> bool:
        return False

    def depends_on_batch(self, kernel: K) -> bool:
        """Padding differs between entries; and the batch is not every argument's first dimension,
        nor the result's."""
        return True


def weight(inputs: Inputs, name: str, text: str, trained: bool) -> None:
    """Adds a parameter `name` to `inputs`, made by the expression `text`."""
    product = any(sign in text for sign in (" / ", " + ", " - "))
    grad = f"({text}).requires_grad_()" if product else f"{text}.requires_grad_()"
    inputs.statements.append(f"{name} = {grad if trained else text}")
    inputs.arguments.append(name)
    inputs.floating.append(name)
    inputs.learnable += [name] * trained


def drawn(scene: Scene, shape: tuple[int, ...]) -> str:
    """A random parameter of that shape: a matrix has variance 1 / its columns, so that projections
    keep the scale."""
    text = f"torch.randn({commas(shape)}{dtype_argument(scene.program.q.dtype)})"
    return f"{text} / {shape[-1]} ** 0.5" if len(shape) == 2 else text


def module_problems(p: Program) -> Iterator[Problem]:
    """What a module does not have around it: its inputs are q, k and v as they come, of the dtype
    of its weights."""
    for key, wrong in (
        ("packed", p.packed != "none"),
        ("transform", p.transform != "none"),
        ("autocast", p.autocast is not None),
        ("surround", replace(p.surround, checkpoint="none") != Surround()),
        ("training.double", p.training is not None and p.training.double),
    ):
        if wrong:
            yield Problem(key, f"expected none with {p.kernel.kind}")
    for name in ("k", "v"):
        if getattr(p, name).dtype != p.q.dtype:
            yield Problem(f"{name}.dtype", "expected q's, which is that of the weights")


def unused_problems(p: Program, key: str, used: tuple[str, ...]) -> Iterator[Problem]:
    """What has no meaning for a module that, by its `key`, takes only the inputs `used`, all of one
    width."""
    if p.shape.q_heads != p.shape.kv_heads or p.shape.v_head_dim not in (None, p.shape.head_dim):
        yield Problem(key, "expected kv_heads and v_head_dim to be q's")
    if p.training is not None and set(p.training.wrt) - {*used}:
        yield Problem("training.wrt", f"expected {' and '.join(used)} alone with {key}")
