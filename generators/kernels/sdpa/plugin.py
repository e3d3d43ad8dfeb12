"""`torch.nn.functional.scaled_dot_product_attention`, written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning, Share
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.scaling import (
    has_scale,
    same_scale,
    scale_argument,
    scale_problems,
)
from attnfuzz.generators.kernels.sdpa import attn_mask, ranks
from attnfuzz.generators.kernels.sdpa.attn_mask import BIASES
from attnfuzz.generators.kernels.sdpa.refusals import REFUSALS
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Argument, Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas

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
    labels = ("module: sdpa",)
    rewritable = True
    computes_scale = True
    takes_nothing = frozenset({"batch", "heads"})
    is_sdpa = True
    refusals = REFUSALS

    def inputs(self, scene: Scene) -> Inputs:
        return attn_mask.inputs(scene, self.spec(scene.program))

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        args, finish = ranks.arguments(scene, spec, bool(inputs.arguments))
        if not inputs.arguments and scene.program.mask is not None:
            args.append("is_causal=True")
        if spec.dropout_p:
            args.append(f"dropout_p={spec.dropout_p!r}")
        args += scale_argument(scene, spec)
        if spec.enable_gqa:
            args.append("enable_gqa=True")
        body = Body([f"F.scaled_dot_product_attention({', '.join(args)}){finish}"])
        if spec.backend != "auto":
            body.contexts.append(f"sdpa_kernel({_backends(spec)})")
        return body

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        if spec.mask_form == "float" and inputs.arguments:
            modify.append("scores = scores + attn_mask")
        elif spec.mask_form == "bool" and inputs.arguments:
            modify.append('scores = scores.masked_fill(~attn_mask, float("-inf"))')
        elif scene.program.mask is not None:
            extents = commas((scene.q_len, scene.kv_len))
            diagonal = f"{scene.kv_len} - {scene.q_len}" if spec.mask_form == "lower_right" else ""
            modify.append(f"mask = torch.ones({extents}, dtype=torch.bool).tril({diagonal})")
            modify.append('scores = scores.masked_fill(~mask, float("-inf"))')
        dead = spec.mask_fill == "-inf" and may_hide_everything(scene.program.mask, scene)
        return Meaning(scene.scale_text(spec.scale, spec.scale_from), modify, zero_dead_rows=dead)

    def fused_operators(self, device: str) -> tuple[str, ...]:
        return FUSED[device]

    def problems(self, program: Program) -> Iterator[Problem]:
        kernel = self.spec(program)
        yield from attn_mask.problems(program, kernel)
        yield from ranks.problems(program, kernel)
        yield from scale_problems(program)
        if kernel.set_priority and kernel.backend == "auto":
            yield Problem("kernel.set_priority", "expected false: there is no order of back-ends")

    def propagates_nan(self, kernel: Sdpa) -> bool:
        return True

    def takes_argument(self, kernel: Sdpa, argument: Argument) -> bool:
        return argument.what == "number" or not (has_scale(kernel) or argument.given == "tensor")

    def gqa_enabled(self, kernel: Sdpa) -> bool:
        return kernel.enable_gqa or kernel.input_rank == 5

    def wrappable(self, kernel: Sdpa) -> bool:
        plain = kernel.mask_form not in BIASES and kernel.mask_dtype == "query"
        return plain and not kernel.dropout_p

    def distributable(self, kernel: Sdpa) -> bool:
        plain = kernel.mask_form not in BIASES and kernel.mask_layout == "contiguous"
        return plain and kernel.input_rank == 4 and not kernel.dropout_p

    def shareable(self, kernel: Sdpa, how: Share) -> bool:
        plain, causal = Sdpa(scale=kernel.scale), kernel.mask_form == "is_causal"
        if how == "operator":
            return kernel in (plain, replace(plain, mask_form="is_causal"))
        if how == "blocks":
            masked = replace(plain, broadcast=kernel.broadcast, mask_rank=kernel.mask_rank)
            return kernel == replace(masked, backend="math")
        whole = self.distributable(kernel) and not kernel.mask_requires_grad
        whole = whole and kernel.scale_from == "constant"
        return whole and (how == "heads" or (how == "rows" and not causal))

    def mask_shape(self, scene: Scene) -> tuple[Any, ...]:
        return attn_mask.mask_shape(scene, self.spec(scene.program))

    def dropout_p(self, kernel: Sdpa) -> float:
        return kernel.dropout_p

    def learns_mask(self, kernel: Sdpa) -> bool:
        return kernel.mask_requires_grad

    def depends_on_batch(self, kernel: Sdpa) -> bool:
        return kernel.mask_bias and "b" not in kernel.broadcast

    def droppable(self, kernel: Sdpa) -> Sdpa:
        flash = kernel.backend == "flash"
        return replace(kernel, backend="auto", set_priority=False) if flash else kernel

    def features(self, program: Program) -> Iterator[str]:
        """SDPA is the plainest kernel, hence no feature; and the mask's own axes force how it is
        broadcast, which says nothing new."""
        kernel, mask = self.spec(program), program.mask
        if mask is not None and set(kernel.broadcast) != {"b", "h"} - mask_axes(mask):
            yield "kernel.sdpa.broadcast"
        yield from choices(kernel, "kernel.sdpa")
        if kernel.dropout_p:
            yield "kernel.sdpa.dropout_p"

    def plain(self, kernel: Sdpa) -> Sdpa:
        return Sdpa()

    def without_groups(self, kernel: Sdpa) -> Sdpa:
        return replace(kernel, enable_gqa=False)

    def distributed(self, kernel: Sdpa) -> Sdpa:
        """DTensor has no rule for a CPU's fused kernel: it takes one apart, for longer than a
        deadline."""
        return replace(kernel, backend="math", set_priority=False)

    def fitted(self, program: Program) -> Program:
        return changed(program, kernel=self._fitted(program), score_mod=None)

    def _fitted(self, p: Program) -> Sdpa:
        kernel = self.spec(p)
        if not self.gqa_enabled(kernel):
            kernel = changed(kernel, enable_gqa=is_grouped(p))
        if p.mesh is not None and p.mesh.method is None:
            kernel = self.distributed(kernel)
        if kernel.backend == "auto":
            kernel = changed(kernel, set_priority=False)
        return attn_mask.fitted(p, kernel)

    def variants(self, program: Program) -> Iterator[tuple[str, Sdpa]]:
        same = same_scale(program)
        sdpa = Sdpa(**same, broadcast=(), enable_gqa=is_grouped(program))
        if isinstance(program.kernel, Sdpa):
            sdpa = replace(program.kernel, dropout_p=0.0, set_priority=False)
        for backend in CHOICES:
            yield f"sdpa.{backend}", replace(sdpa, backend=backend)


def _backends(kernel: Sdpa) -> str:
    """What `sdpa_kernel` is given."""
    first = f"SDPBackend.{BACKENDS[kernel.backend]}"
    if not kernel.set_priority:
        return first
    other = BACKENDS["flash" if kernel.backend == "math" else "math"]
    return f"[{first}, SDPBackend.{other}], set_priority=True"


PLUGIN = SdpaPlugin()
