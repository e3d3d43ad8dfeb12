"""`torch.nn.functional.scaled_dot_product_attention`, written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.sdpa.refusals import REFUSALS
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal, Mask
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.dense import dense_mask, full_shape, may_hide_everything
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import Size, commas

BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
CHOICES: tuple[Literal["auto", "math", "flash", "efficient"], ...] = (
    "auto", "math", "flash", "efficient",
)  # fmt: skip
FUSED = {
    "cpu": ("aten._scaled_dot_product_flash_attention_for_cpu",),
    "cuda": (
        "aten._scaled_dot_product_flash_attention",
        "aten._scaled_dot_product_efficient_attention",
    ),
    "xpu": ("aten._scaled_dot_product_fused_attention_overrideable",),
    "npu": ("npu.npu_fusion_attention_v3",),
}
"""By device, what `scaled_dot_product_attention` is to a selective checkpoint."""


class SdpaPlugin(KernelPlugin[Sdpa]):
    """The mask is an argument `attn_mask`, bool or additive, unless `is_causal` says it."""

    spec_class = Sdpa
    takes_nothing = frozenset({"batch", "heads"})
    is_sdpa = True
    refusals = REFUSALS

    def mask(self, scene: Scene) -> Mask | None:
        """The mask that is handed over as a tensor."""
        return None if self.spec(scene.program).mask_form == "is_causal" else scene.program.mask

    def inputs(self, scene: Scene) -> Inputs:
        mask, spec = self.mask(scene), self.spec(scene.program)
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
        """The last `mask_rank` of `[B, Hq, Lq, Lkv]`, with 1 where the mask is broadcast."""
        spec = self.spec(scene.program)
        return full_shape(scene, spec.broadcast)[4 - spec.mask_rank :]

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
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
        spec, modify = self.spec(scene.program), []
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

    def fused_operators(self, device: str) -> tuple[str, ...]:
        return FUSED[device]

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        if kernel.mask_form == "is_causal":
            if p.mask != Causal():
                yield Problem(
                    "kernel.mask_form", "expected bool or float: is_causal is Causal only"
                )
            return
        if kernel.mask_requires_grad and kernel.mask_form != "float":
            yield Problem("kernel.mask_requires_grad", "expected false: only a float mask has one")
        if p.mask is None:
            return
        if len(set(kernel.broadcast)) != len(kernel.broadcast):
            yield Problem("kernel.broadcast", f"expected distinct axes, got {kernel.broadcast}")
        for axis in kernel.broadcast:
            if axis in mask_axes(p.mask):
                yield Problem("kernel.broadcast", f"expected no {axis}: the mask depends on it")
        for dropped in ("b", "h")[: 4 - kernel.mask_rank]:
            if dropped not in kernel.broadcast:
                yield Problem(
                    "kernel.mask_rank",
                    f"expected 4, or {dropped} among the axes that are broadcast",
                )

    def gqa_enabled(self, kernel: Sdpa) -> bool:
        return kernel.enable_gqa

    def wrappable(self, kernel: Sdpa) -> bool:
        return True

    def distributable(self, kernel: Sdpa) -> bool:
        return True

    def learns_mask(self, kernel: Sdpa) -> bool:
        return kernel.mask_requires_grad

    def features(self, program: Program) -> Iterator[str]:
        """SDPA is the plainest kernel, hence no feature; and the mask's own axes force how it is
        broadcast, which says nothing new."""
        kernel, mask = self.spec(program), program.mask
        if mask is not None and set(kernel.broadcast) != {"b", "h"} - mask_axes(mask):
            yield "kernel.sdpa.broadcast"
        yield from choices(kernel, "kernel.sdpa")

    def plain(self, kernel: Sdpa) -> Sdpa:
        return Sdpa()

    def without_groups(self, kernel: Sdpa) -> Sdpa:
        return replace(kernel, enable_gqa=False)

    def distributed(self, kernel: Sdpa) -> Sdpa:
        """DTensor has no rule for a CPU's fused kernel: it takes one apart, for longer than a
        deadline."""
        return replace(kernel, backend="math")

    def fitted(self, program: Program) -> Program:
        return replace(program, kernel=self._fitted(program), score_mod=None)

    def _fitted(self, p: Program) -> Sdpa:
        kernel = self.spec(p)
        kernel = replace(kernel, enable_gqa=kernel.enable_gqa or is_grouped(p))
        if p.mesh is not None:
            kernel = self.distributed(kernel)
        if p.mask is None:
            plain = Sdpa()
            return replace(
                kernel, mask_form=plain.mask_form, broadcast=plain.broadcast,
                mask_rank=plain.mask_rank, mask_requires_grad=plain.mask_requires_grad,
            )  # fmt: skip
        if kernel.mask_form == "is_causal" and p.mask != Causal():
            kernel = replace(kernel, mask_form="bool")
        depends = mask_axes(p.mask)
        broadcast = tuple(axis for axis in kernel.broadcast if axis not in depends)
        rank = kernel.mask_rank if broadcast == kernel.broadcast else 4
        return replace(kernel, broadcast=broadcast, mask_rank=rank)

    def variants(self, program: Program) -> Iterator[tuple[str, Sdpa]]:
        scale = getattr(program.kernel, "scale", None)
        sdpa = Sdpa(scale=scale, broadcast=(), enable_gqa=is_grouped(program))
        if isinstance(program.kernel, Sdpa):
            sdpa = program.kernel
        for backend in CHOICES:
            yield f"sdpa.{backend}", replace(sdpa, backend=backend)


PLUGIN = SdpaPlugin()
