"""Attention of Hugging Face diffusers, written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.conditions import differentiates
from attnfuzz.generators.kernels.diffusers.spec import Diffusers
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.sdpa import attn_mask
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.kernels.specs import Flex, Sdpa
from attnfuzz.generators.kernels.system_rules import one_dtype, without
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas


def differentiates_flex(program: Program) -> bool:
    """Whether it trains with flex_attention."""
    kernel = program.kernel
    return isinstance(kernel, Diffusers) and kernel.backend == "flex" and differentiates(program)


class DiffusersPlugin(KernelPlugin[Diffusers]):
    """The mask is handed over as it is to SDPA, whatever the back-end."""

    spec_class = Diffusers
    package = "diffusers"
    interchangeable = False
    refusals = (
        Refusal(
            pattern=r"FlexAttention does not support backward on (CPU|MPS)\.",
            why="flex_attention has no backward on this device",
            needs=differentiates_flex,
        ),
        *AUTOGRAD,
    )

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec, imports = self.spec(scene.program), [_IMPORT]
        if spec.padding:
            length = scene.kv_len
            entries = f"(torch.arange({scene.batch})[:, None] + 1) % 3"
            made = f"attn_mask = torch.arange({length}) < {length} - {entries} * {length} // 3"
            return Inputs([made], ["attn_mask"], imports=imports)
        inputs = attn_mask.inputs(scene, _handed_over(scene.program, spec))
        inputs.imports = imports
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        given = [f"{name}.transpose(1, 2)" for name in ("q", "k", "v")]
        given += ["attn_mask=attn_mask"] if inputs.arguments else []
        given += ["is_causal=True"] if spec.is_causal else []
        given += [f"scale={spec.scale!r}"] if spec.scale is not None else []
        given += ["enable_gqa=True"] if is_grouped(scene.program) else []
        given += [f'backend="{spec.backend}"']
        return Body([f"dispatch_attention_fn({', '.join(given)}).transpose(1, 2)"])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        if spec.is_causal:
            extents = commas((scene.q_len, scene.kv_len))
            modify.append(f"seen = torch.ones({extents}, dtype=torch.bool).tril()")
            modify.append('scores = scores.masked_fill(~seen, float("-inf"))')
        elif spec.padding:
            seen = "attn_mask[:, None, None, :]"
            modify.append(f'scores = scores.masked_fill(~{seen}, float("-inf"))')
        elif inputs.arguments and spec.mask_form == "bool":
            modify.append('scores = scores.masked_fill(~attn_mask, float("-inf"))')
        elif inputs.arguments:
            modify.append("scores = scores + attn_mask")
        dead = not spec.padding and may_hide_everything(scene.program.mask, scene)
        return Meaning(scene.scale_text(spec.scale), modify, zero_dead_rows=dead)

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        yield from without(p, "diffusers")
        if p.mask is not None and (kernel.is_causal or kernel.padding):
            yield Problem("mask", "expected none with kernel.is_causal or kernel.padding")
        if kernel.is_causal and kernel.padding:
            yield Problem("kernel.padding", "expected false with kernel.is_causal")
        if kernel.padding and kernel.backend == "_native_math":
            yield Problem("kernel.padding", "expected false: _native_math hands a mask on as it is")
        for key, q_len, kv_len in lengths(p):
            if not q_len or not kv_len:
                yield Problem(f"{key}.kv_len", "expected at least 1, and q_len too")
        yield from one_dtype(p)

    def depends_on_batch(self, kernel: Diffusers) -> bool:
        return kernel.padding

    # How its programs are simplified.

    def plain(self, kernel: Diffusers) -> Diffusers:
        return Diffusers(backend=kernel.backend)

    def underneath(self, program: Program) -> Iterator[Program]:
        kernel = self.spec(program)
        below = Flex() if kernel.backend == "flex" else _handed_over(program, kernel)
        yield changed(program, kernel=changed(below, scale=kernel.scale))

    def fitted(self, program: Program) -> Program:
        kernel = self.spec(program)
        if program.mask is None:
            kernel = changed(kernel, mask_form="bool")
        return changed(program, kernel=kernel, score_mod=None)


_IMPORT = "from diffusers.models.attention_dispatch import dispatch_attention_fn"


def _handed_over(program: Program, spec: Diffusers) -> Sdpa:
    """SDPA that is given the mask in the same form."""
    axes = mask_axes(program.mask) if program.mask is not None else frozenset()
    broadcast = tuple(axis for axis in attn_mask.LEADING[:2] if axis not in axes)
    return Sdpa(mask_form=spec.mask_form, broadcast=broadcast)  # type: ignore[arg-type]


PLUGIN = DiffusersPlugin()
