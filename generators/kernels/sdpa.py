"""`torch.nn.functional.scaled_dot_product_attention`, written down."""

from __future__ import annotations

from attnfuzz.generators.kernels.base import Body, Inputs, Meaning
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.render.dense import dense_mask, full_shape, may_hide_everything
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import Size, commas

BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}


class SdpaPlugin:
    """The mask is an argument `attn_mask`, bool or additive, unless `is_causal` says it."""

    def spec(self, scene: Scene) -> Sdpa:
        kernel = scene.program.kernel
        assert isinstance(kernel, Sdpa)
        return kernel

    def mask(self, scene: Scene) -> Mask | None:
        """The mask that is handed over as a tensor."""
        return None if self.spec(scene).mask_form == "is_causal" else scene.program.mask

    def inputs(self, scene: Scene) -> Inputs:
        mask, spec = self.mask(scene), self.spec(scene)
        if mask is None:
            return Inputs()
        shape = self.mask_shape(scene)
        if spec.mask_form == "bool":
            return Inputs(dense_mask(mask, scene, "attn_mask", shape), ["attn_mask"])
        zeros = f"torch.zeros({commas(shape)}{dtype_argument(scene.program.q.dtype)})"
        additive = f'{zeros}.masked_fill(~mask, float("-inf"))'
        learnable = spec.mask_requires_grad and scene.program.training is not None
        if learnable:
            additive += ".requires_grad_()"
        return Inputs(
            [*dense_mask(mask, scene, "mask", shape), f"attn_mask = {additive}"],
            ["attn_mask"],
            ["attn_mask"] if learnable else [],
            ["attn_mask"],
        )

    def mask_shape(self, scene: Scene) -> tuple[Size, ...]:
        spec = self.spec(scene)
        return full_shape(scene, spec.broadcast)[4 - spec.mask_rank :]

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene)
        args = ["q", "k", "v"]
        if inputs.arguments:
            args.append("attn_mask=attn_mask")
        elif scene.program.mask is not None:
            args.append("is_causal=True")
        if spec.scale is not None:
            args.append(f"scale={spec.scale!r}")
        if spec.enable_gqa:
            args.append("enable_gqa=True")
        body = Body([f"F.scaled_dot_product_attention({', '.join(args)})"])
        if spec.backend != "auto":
            body.contexts.append(f"sdpa_kernel(SDPBackend.{BACKENDS[spec.backend]})")
        return body

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene), []
        if inputs.arguments and spec.mask_form == "float":
            modify.append("scores = scores + attn_mask")
        elif inputs.arguments:
            modify.append('scores = scores.masked_fill(~attn_mask, float("-inf"))')
        elif scene.program.mask is not None:
            extents = commas((scene.q_len, scene.kv_len))
            modify.append(f"mask = torch.ones({extents}, dtype=torch.bool).tril()")
            modify.append('scores = scores.masked_fill(~mask, float("-inf"))')
        dead = may_hide_everything(scene.program.mask, scene)
        return Meaning(scene.scale_text(spec.scale), modify, zero_dead_rows=dead)

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        return ("out",)


PLUGIN = SdpaPlugin()
