"""A user's own attention function, imported and called on q, k and v."""

from __future__ import annotations

from attnfuzz.generators.kernels.base import Body, Inputs, Meaning
from attnfuzz.generators.kernels.specs import Function
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas


class FunctionPlugin:
    """`from module import name`, under another name where a rendering uses that itself."""

    def inputs(self, scene: Scene) -> Inputs:
        return Inputs()

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        kernel = scene.program.kernel
        assert isinstance(kernel, Function)
        module, _, name = kernel.target.partition(":")
        return Body([f"{scene.quoting.function(module, name)}(q, k, v)"])

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
