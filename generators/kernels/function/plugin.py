"""A user's own attention function, imported and called on q, k and v."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.function.refusals import REFUSALS
from attnfuzz.generators.kernels.function.spec import Function
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas


class FunctionPlugin(KernelPlugin[Function]):
    """`from module import name`, under another name where a rendering uses that itself."""

    spec_class = Function
    refusals = REFUSALS

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        kernel = self.spec(scene.program)
        module, _, name = kernel.target.partition(":")
        return Body([f"{scene.quoting.function(module, name)}(q, k, v)"])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        modify = []
        if scene.program.mask is not None:
            extents = commas((scene.q_len, scene.kv_len))
            modify.append(f"mask = torch.ones({extents}, dtype=torch.bool).tril()")
            modify.append('scores = scores.masked_fill(~mask, float("-inf"))')
        return Meaning(scene.scale_text(None), modify)

    def problems(self, program: Program) -> Iterator[Problem]:
        p = program
        if p.mask not in (None, Causal()):
            yield Problem("mask", "expected none or causal: a function takes no other mask")
        if p.shape.q_heads != p.shape.kv_heads:
            yield Problem("shape.q_heads", f"expected kv_heads ({p.shape.kv_heads}) for a function")

    def imports(self, kernel: Function) -> str | None:
        return kernel.target

    def wrappable(self, kernel: Function) -> bool:
        return True


PLUGIN = FunctionPlugin()
