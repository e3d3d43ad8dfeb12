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
        if sharding.mesh.lengths:
            return ["k, v = gather(k), gather(v)"]
        if self.spec(sharding.program).by == "collective":
            group = f"{sharding.own_mesh}.get_group()"
            gathered = f"all_gather_tensor_autograd(t.contiguous(), 2, {group})"
            return [f"k, v = ({gathered} for t in (k, v))"]
        shape, trains = sharding.program.shape, sharding.program.training is not None
        if self.is_plain(sharding):
            whole = ""
            if not self.is_even(sharding):
                whole = sharding.global_shape(shape.kv_heads, shape.kv_len, str(shape.head_dim))
            part = f"DTensor.from_local(t, MESH, {sharding.parts}{whole})"
            if not trains:
                return [f"k, v = ({part}.full_tensor() for t in (k, v))"]
            summed = "t.full_tensor(grad_placements=[Partial()])"  # over the ranks
            return [f"k, v = ({each} for t in (k, v))" for each in (part, summed)]
        if self.is_even(sharding):
            return ["k, v = gather(k), gather(v)"]
        return [
            f"k = gather(k, {shape.head_dim})",
            f"v = gather(v, {shape.v_head_dim or shape.head_dim})",
        ]

    def helpers(self, sharding: Sharding) -> list[Function]:
        if sharding.mesh.lengths:
            return [self.padded(sharding)]
        if self.spec(sharding.program).by == "collective" or self.is_plain(sharding):
            return []
        shape = sharding.program.shape
        head, whole = "def gather(x):", ""
        if not self.is_even(sharding):
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

    @staticmethod
    def padded(sharding: Sharding) -> Function:
        """Gathering parts that differ in length, which a collective does not take."""
        parts = f"zip(x.chunk({sharding.mesh.degree}, dim=2), LENGTHS)"
        return [
            "def gather(x):",
            '    """All of k or v; on the way all parts are as long as the longest."""',
            "    x = F.pad(x, (0, 0, 0, max(LENGTHS) - x.shape[2])).contiguous()",
            "    x = all_gather_tensor_autograd(x, 2, MESH.get_group())",
            f"    return torch.cat([part[:, :, :length] for part, length in {parts}], dim=2)",
        ]

    def takes_lengths(self, program: Program) -> bool:
        return self.spec(program).by == "collective"

    @staticmethod
    def is_even(sharding: Sharding) -> bool:
        """Whether all ranks have as many keys."""
        return len(set(chunks(sharding.program.shape.kv_len, sharding.mesh.degree))) == 1

    def is_plain(self, sharding: Sharding) -> bool:
        """Whether gathering k and v takes no function, being alike for both."""
        shape = sharding.program.shape
        alike = shape.v_head_dim in (None, shape.head_dim) or self.is_even(sharding)
        return alike and sharding.is_flat

    def problems(self, program: Program) -> Iterator[Problem]:
        yield from super().problems(program)
        degree, shape = self.mesh(program).degree, program.shape
        even = self.mesh(program).lengths or not shape.kv_len % degree
        if self.spec(program).by == "collective" and not even:
            yield Problem("shape.kv_len", f"expected a multiple of {degree} for by: collective")


PLUGIN = AllGatherPlugin()
