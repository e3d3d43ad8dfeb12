"""Gathered keys, written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.methods.all_gather.spec import AllGather
from attnfuzz.generators.methods.base import Function
from attnfuzz.generators.methods.local import AroundKernel
from attnfuzz.generators.methods.sharding import Sharding, chunks
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program


class AllGatherPlugin(AroundKernel[AllGather]):
    """The mask's rows are those of this rank's queries."""

    spec_class = AllGather
    mask_placement = "Shard({dim})"

    def before(self, sharding: Sharding) -> list[str]:
        if self.spec(sharding.program).by == "collective":
            group = f"{sharding.own_mesh}.get_group()"
            gathered = f"all_gather_tensor_autograd(t.contiguous(), 2, {group})"
            return [f"k, v = ({gathered} for t in (k, v))"]
        shape = sharding.program.shape
        if len(set(chunks(shape.kv_len, sharding.mesh.degree))) == 1:
            return ["k, v = gather(k), gather(v)"]
        return [
            f"k = gather(k, {shape.head_dim})",
            f"v = gather(v, {shape.v_head_dim or shape.head_dim})",
        ]

    def helpers(self, sharding: Sharding) -> list[Function]:
        if self.spec(sharding.program).by == "collective":
            return []
        shape = sharding.program.shape
        head, whole = "def gather(x):", ""
        if len(set(chunks(shape.kv_len, sharding.mesh.degree))) > 1:
            length, heads = shape.kv_len, shape.kv_heads
            head = "def gather(x, dim):"
            whole = sharding.global_shape(heads, length, "dim")
        summed = sharding.placements("Partial()")
        return [[
            head,
            '    """All of k or v, of this rank\'s part; gradients are summed over the ranks."""',
            f"    x = DTensor.from_local(x, MESH, {sharding.parts}{whole})",
            f"    x = x.redistribute(MESH, {sharding.placements('Replicate()')})",
            f"    return x.to_local(grad_placements={summed})",
        ]]  # fmt: skip

    def problems(self, program: Program) -> Iterator[Problem]:
        yield from super().problems(program)
        degree, shape = self.mesh(program).degree, program.shape
        if self.spec(program).by == "collective" and shape.kv_len % degree:
            yield Problem("shape.kv_len", f"expected a multiple of {degree} for by: collective")


PLUGIN = AllGatherPlugin()
