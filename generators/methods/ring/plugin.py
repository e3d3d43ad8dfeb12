"""Ring attention, written down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.base import Function, MethodPlugin
from attnfuzz.generators.methods.local import attention, compiles_locally
from attnfuzz.generators.methods.ring.spec import Ring
from attnfuzz.generators.methods.ring.writing import Writer
from attnfuzz.generators.methods.sharding import Sharding, chunks
from attnfuzz.generators.methods.ulysses.plugin import redistributed
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene


class RingPlugin(MethodPlugin[Ring]):
    """The block is SDPA's meaning in plain operations; sums over blocks are kept in float32."""

    spec_class = Ring
    traced = False

    def set_up(self, scene: Scene) -> list[str]:
        sharding = self.sharding(scene.program)
        size, own = sharding.size, sharding.own_mesh
        lines = [f"RANK, SIZE, GROUP = {own}.get_local_rank(), {size}, {own}.get_group()"]
        if sharding.is_flat:
            lines = [f"RANK, SIZE = dist.get_rank(), {size}"]
        if size == 1:
            lines = []
        lengths = self.key_lengths(scene.program)
        if len(set(lengths)) > 1:
            lines.append(f"LENGTHS = {lengths}")
        length = scene.program.shape.q_len
        match self.spec(scene.program).order:
            case "zigzag":
                front_and_end = f"i for r in range({size}) for i in (r, {2 * size - 1} - r)"
                parts = f"torch.arange({length}).view({2 * size}, -1)"
                lines.append(f"ORDER = {parts}[[{front_and_end}]].flatten()")
            case "striped":
                lines.append(f"ORDER = torch.arange({length}).view(-1, {size}).T.flatten()")
        return lines

    def sharding(self, program: Program) -> Sharding:
        """How the program is sharded."""
        return Sharding(program, self.shared, self.spec(program).ulysses)

    def key_lengths(self, program: Program) -> list[int]:
        """How many keys each rank of the ring has."""
        own = self.mesh(program).lengths
        return [*own] or chunks(program.shape.kv_len, self.sharding(program).size)

    def takes_lengths(self, program: Program) -> bool:
        spec = self.spec(program)
        return spec.order == "contiguous" and spec.ulysses == 1

    def takes_parts(self, program: Program) -> bool:
        spec = self.spec(program)
        return (
            self.takes_lengths(program) and not spec.return_lse and not self.mesh(program).lengths
        )

    def functions(
        self, scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
    ) -> list[Function]:
        p, spec = scene.program, self.spec(scene.program)
        sharding, masked = self.sharding(p), bool(inputs.arguments)
        shape = plugin.mask_shape(scene) if masked else ()
        writer = Writer(scene, sharding, self.key_lengths(p), shape, spec.return_lse)
        ordered = spec.order != "contiguous"
        lines = ["q, k, v = (t[:, :, ORDER] for t in (q, k, v))"] if ordered else []
        if ordered and masked:
            rows = "[..., ORDER, :]" if shape[-2] > 1 else ""
            columns = "[..., ORDER]" if shape[-1] > 1 else ""
            lines += [f"attn_mask = attn_mask{rows}{columns}"] if rows or columns else []
        if masked:
            last = f"Shard({len(shape) - 2})" if shape[-2] > 1 else "Replicate()"
            lines += sharding.shard_mask("attn_mask", shape, last)
        lines += sharding.shard
        back, around = "{}", list[Function]()
        if sharding.inner > 1:
            lines.append("q, k, v = to_heads(q), to_heads(k), to_heads(v)")
            back = "to_length({})"
            around = [
                redistributed("to_heads", sharding, 2, 1),
                redistributed("to_length", sharding, 1, 2),
            ]
        out, lse = back.format("out"), back.format("lse") if spec.return_lse else ""
        first: list[Function] = []
        if p.training is not None:
            first = [writer.autograd()]
            results = "out, lse" if spec.return_lse else "out"
            given = ["q", "k", "v", *inputs.arguments, *["attend"] * compiles_locally(p)]
            lines.append(f"{results} = Ring.apply({', '.join(given)})")
        else:
            lines += writer.forward("attn_mask")
            out = back.format(f"out{writer.narrowed}")
        lines += sharding.returned(out, lse, "ORDER.argsort()" if ordered else "")
        return [*around, *writer.steps(), *first, attention(scene, names, lines)]

    def problems(self, program: Program) -> Iterator[Problem]:
        shape, degree = program.shape, self.mesh(program).degree
        ulysses, heads = self.spec(program).ulysses, self.mesh(program).tensor
        if degree % ulysses or shape.q_heads % (ulysses * heads):
            yield Problem("mesh.method.ulysses", "expected one that divides the degree and heads")
            return
        if ulysses > 1 and (shape.q_len % degree or shape.kv_len % degree):
            yield Problem("shape.q_len", f"expected a multiple of {degree}, and kv_len too")
        if not plugin_of(program).shareable(program.kernel, "blocks"):
            yield Problem("kernel", "expected SDPA of backend math with a bool mask, for ring")
        if shape.q_heads != shape.kv_heads:
            yield Problem("shape.q_heads", "expected kv_heads for ring")
        order = self.spec(program).order
        if order == "contiguous":
            return
        multiple = degree * (2 if order == "zigzag" else 1)
        if shape.q_len != shape.kv_len or shape.q_len % multiple or not shape.q_len:
            yield Problem("shape.q_len", f"expected kv_len, a multiple of {multiple} for {order}")


PLUGIN = RingPlugin()
