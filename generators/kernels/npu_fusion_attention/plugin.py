"""`torch_npu.npu_fusion_attention`, written down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning, Share
from attnfuzz.generators.kernels.npu_fusion_attention.spec import NpuFusionAttention
from attnfuzz.generators.kernels.shared_refusals import MESH
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.dense import dense_mask, full_shape
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas, tuple_of

BROADCAST: dict[str, tuple[str, ...]] = {
    "11SS": ("b", "h"), "SS": ("b", "h"), "B1SS": ("h",), "BNSS": (),
}  # fmt: skip
TRIANGLE = "atten_mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)"


class NpuFusionAttentionPlugin(KernelPlugin[NpuFusionAttention]):
    """The mask is an argument `atten_mask`, True where nothing is seen."""

    spec_class = NpuFusionAttention
    package = "torch_npu"
    interchangeable = False
    refusals = MESH

    def inputs(self, scene: Scene) -> Inputs:
        spec, mask = self.spec(scene.program), scene.program.mask
        inputs = Inputs(imports=["import torch_npu"])
        if spec.sparse_mode > 1:
            inputs.statements.append(TRIANGLE)
        elif mask is not None:
            made = dense_mask(mask, scene, "mask", self.mask_shape(scene))
            inputs.statements = [*made, "atten_mask = ~mask"]
        if inputs.statements:
            inputs.arguments.append("atten_mask")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        there, back = _moved(scene, spec.input_layout)
        args = [*(there.format(t=name) for name in ("q", "k", "v"))]
        args += [str(scene.q_heads), f'"{spec.input_layout}"']
        if inputs.arguments:
            args.append("atten_mask=atten_mask")
        args.append(f"scale={scene.scale_text(spec.scale)}")
        if spec.sparse_mode:
            args.append(f"sparse_mode={spec.sparse_mode}")
        if spec.sparse_mode == 4:
            args += [f"pre_tockens={spec.pre_tockens}", f"next_tockens={spec.next_tockens}"]
        if spec.input_layout == "TND":
            for name, length in (("q", scene.q_len), ("kv", scene.kv_len)):
                ends = f"range({length}, {scene.batch} * {length} + 1, {length})"
                args.append(f"actual_seq_{name}len=list({ends})")
        return Body([f"torch_npu.npu_fusion_attention({', '.join(args)})[0]{back}"])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        hidden = "atten_mask" if inputs.arguments else ""
        if spec.sparse_mode > 1:
            ahead = "" if spec.sparse_mode == 2 or scene.q_len == scene.kv_len else (
                f" + {scene.kv_len} - {scene.q_len}"
            )  # fmt: skip
            rows, columns = f"torch.arange({scene.q_len})[:, None]", f"torch.arange({scene.kv_len})"
            modify.append(f"distance = {rows}{ahead} - {columns}")
            hidden = "distance < 0"
        if spec.sparse_mode == 4:
            hidden = f"(distance > {spec.pre_tockens}) | (distance < {-spec.next_tockens})"
        if hidden:
            modify.append(f'scores = scores.masked_fill({hidden}, float("-inf"))')
        return Meaning(scene.scale_text(spec.scale), modify)

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        if p.transform != "none":
            yield Problem("transform", "expected none with npu_fusion_attention")
        if p.shape.v_head_dim not in (None, p.shape.head_dim):
            yield Problem("shape.v_head_dim", "expected head_dim for npu_fusion_attention")
        own, packed = kernel.sparse_mode > 1, kernel.input_layout == "TND"
        if p.mask is not None and own:
            yield Problem("mask", f"expected none: sparse_mode {kernel.sparse_mode} has its own")
        if p.mask is not None and packed:
            yield Problem("mask", "expected none for TND")
        if p.mask is None and kernel.sparse_mode == 1:
            yield Problem("mask", "expected one: sparse_mode 1 needs it")
        axes = mask_axes(p.mask) if p.mask is not None else frozenset()
        for axis, shapes in (("b", ("B1SS", "BNSS")), ("h", ("BNSS",))):
            if axis in axes and kernel.mask_shape not in shapes:
                yield Problem(
                    "kernel.mask_shape", f"expected {' or '.join(shapes)}: it depends on {axis}"
                )
        for key, q_len, kv_len in lengths(p):
            if not q_len or not kv_len:
                yield Problem(f"{key}.q_len", "expected lengths above 0 for npu_fusion_attention")
            if kernel.sparse_mode in (3, 4) and q_len > kv_len:
                yield Problem(
                    f"{key}.q_len", "expected kv_len at most: each query has to see a key"
                )

    def distributable(self, kernel: NpuFusionAttention) -> bool:
        return True

    def shareable(self, kernel: NpuFusionAttention, how: Share) -> bool:
        return how in ("heads", "rows") and kernel.sparse_mode < 2 and kernel.input_layout != "TND"

    def mask_shape(self, scene: Scene) -> tuple[Any, ...]:
        form = self.spec(scene.program).mask_shape
        shape = full_shape(scene, BROADCAST[form])  # type: ignore[arg-type]
        return shape[2:] if form == "SS" else shape

    def has_own_mask(self, kernel: NpuFusionAttention) -> bool:
        return kernel.sparse_mode > 1

    def plain(self, kernel: NpuFusionAttention) -> NpuFusionAttention:
        return NpuFusionAttention(sparse_mode=kernel.sparse_mode, mask_shape=kernel.mask_shape)


def _moved(scene: Scene, layout: str) -> tuple[str, str]:
    """What brings a tensor `{t}` `[B, N, S, D]` into `layout`, and a result back from it."""
    heads = tuple_of((scene.q_heads, scene.head_dim))
    match layout:
        case "BSND":
            return "{t}.transpose(1, 2)", ".transpose(1, 2)"
        case "BSH":
            return "{t}.transpose(1, 2).flatten(2)", f".unflatten(2, {heads}).transpose(1, 2)"
        case "SBH":
            return (
                "{t}.permute(2, 0, 1, 3).flatten(2)",
                f".unflatten(2, {heads}).permute(1, 2, 0, 3)",
            )
        case "TND":
            tokens = f"({commas((scene.batch, scene.q_len))})"
            return "{t}.transpose(1, 2).flatten(0, 1)", f".unflatten(0, {tokens}).transpose(1, 2)"
    return "{t}", ""


PLUGIN = NpuFusionAttentionPlugin()
