"""A user's own attention function, imported and called on q, k and v."""

from __future__ import annotations

from generators.kernels.base import Body, Inputs, Meaning
from generators.kernels.specs import Function
from generators.render.scene import RESERVED, Scene
from generators.render.sizes import commas

OURS = {*RESERVED, "attention", "attend", "reference", "compiled", "run", "inputs", "torch", "F"}


class FunctionPlugin:
    """`from module import name`; the name gets an alias where a rendering uses it itself."""

    def target(self, scene: Scene) -> tuple[str, str]:
        kernel = scene.program.kernel
        assert isinstance(kernel, Function)
        module, _, name = kernel.target.partition(":")
        return module, name

    def alias(self, scene: Scene) -> str:
        name = self.target(scene)[1]
        return f"{name}_function" if name in OURS else name

    def inputs(self, scene: Scene) -> Inputs:
        module, name = self.target(scene)
        alias = self.alias(scene)
        suffix = "" if alias == name else f" as {alias}"
        return Inputs(imports=[f"from {module} import {name}{suffix}"])

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        return Body([f"{self.alias(scene)}(q, k, v)"])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        modify = []
        if scene.program.mask is not None:
            extents = commas((scene.q_len, scene.kv_len))
            modify.append(f"mask = torch.ones({extents}, dtype=torch.bool).tril()")
            modify.append('scores = scores.masked_fill(~mask, float("-inf"))')
        return Meaning(scene.scale_text(None), modify)

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        return ("out",)


PLUGIN = FunctionPlugin()
