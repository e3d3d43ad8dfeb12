"""torch's context parallelism of flex_attention, written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin, Share
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.base import Function, MethodPlugin
from attnfuzz.generators.methods.flex_context_parallel.spec import FlexContextParallel
from attnfuzz.generators.methods.local import attention
from attnfuzz.generators.methods.sharding import Sharding
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.devices import beside
from attnfuzz.generators.render.scene import Scene, indented

BLOCK = 128
"""`_DEFAULT_SPARSE_BLOCK_SIZE` of flex_attention, in which torch shards."""


class FlexContextParallelPlugin(MethodPlugin[FlexContextParallel]):
    """torch's own functions shard and gather, or DTensor where there are gradients, which they have
    not, nor has flex_attention on a CPU. A score modification is written for whole sequences, which
    torch leaves to the user: it is given the indices in the whole."""

    spec_class = FlexContextParallel
    traced = False

    def functions(
        self, scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
    ) -> list[Function]:
        p, spec = scene.program, self.spec(scene.program)
        sharding = Sharding(p, self.shared)
        degree, length = sharding.mesh.degree, p.shape.q_len
        scored = p.score_mod is not None
        arguments = ["q", "k", "v", *(["score_mod"] if scored else []), "block_mask"]
        body = plugin.call(replace(scene, program=replace(p, mesh=None)), inputs)
        module = [
            "class Attention(torch.nn.Module):",
            f"    def forward(self, {', '.join(arguments)}):",
            *indented([*body.statements, f"return {', '.join(body.result)}"], 2),
        ]
        made = [
            "style = cp._ContextParallel(2, cp._ContextParallel.AttentionType.FLEX)",
            "attend = parallelize_module(Attention(), MESH, style)",
        ]
        lines, balancer = self._balancer(spec, length, degree, scene.device)
        trains = p.training is not None
        whole = f"torch.arange({length}{beside(scene.device, 'q')})"
        order = "balancer._generate_indices()[0]" if balancer else whole
        ordered = [f"order = {order}"] if scored or (balancer and trains) else []
        if trains:
            moved = ["q, k, v = (t[:, :, order] for t in (q, k, v))"] if balancer else []
            mask = f"block_mask = cp._context_parallel_shard(MESH, [block_mask], [2]{balancer})[0]"
            lines += [*ordered, *moved, *sharding.shard, mask]
        else:
            sharded = f"MESH, [q, k, v, block_mask], [2, 2, 2, 2]{balancer}"
            lines.append(f"q, k, v, block_mask = cp._context_parallel_shard({sharded})")
            lines += ordered
        if scored:
            lines += [
                f"rows = order.chunk({degree})[MESH.get_local_rank()]",
                "",
                "def scored(score, b, h, q_idx, kv_idx):",
                "    return score_mod(score, b, h, rows[q_idx], order[kv_idx])",
                "",
            ]
        given = ", ".join("scored" if name == "score_mod" else name for name in arguments)
        with_lse = "lse" in plugin.outputs(scene)
        if trains:
            lines += self._gathered(sharding, f"attend({given})", with_lse, bool(balancer))
        elif with_lse:
            unsharded = f"cp.context_parallel_unshard(MESH, attend({given}), [2, 2]{balancer})"
            lines.append(f"return {unsharded}")
        else:
            unsharded = f"cp.context_parallel_unshard(MESH, [attend({given})], [2]{balancer})"
            lines.append(f"return {unsharded}[0]")
        return [module, made, attention(scene, names, lines)]

    @staticmethod
    def _gathered(sharding: Sharding, result: str, with_lse: bool, ordered: bool) -> Function:
        """The last statements where DTensor gathers the `result` of this rank's part."""
        back = "[:, :, order.argsort()]" if ordered else ""
        if not with_lse:
            return [f"return {sharding.whole(result)}{back}"]
        lse = f"lse = {sharding.whole('lse')}{back}"
        return [f"out, lse = {result}", lse, f"return {sharding.whole('out')}{back}, lse"]

    @staticmethod
    def _balancer(
        spec: FlexContextParallel, length: int, degree: int, device: str
    ) -> tuple[list[str], str]:
        """The statement that makes the load balancer, and the argument that hands it over."""
        match spec.balance:
            case "head_tail":
                made = f'cp._HeadTailLoadBalancer({length}, {degree}, "{device}")'
            case "per_document":
                halves = [length // 2, length // 2]
                made = f'cp._PerDocumentHeadTailLoadBalancer([{halves}], {degree}, "{device}")'
            case "ptrr":
                made = f"cp._PTRRLoadBalancer(block_mask, {degree})"
            case _:
                return [], ""
        return [f"balancer = {made}"], ", balancer"

    def problems(self, program: Program) -> Iterator[Problem]:
        spec, shape = self.spec(program), program.shape
        mesh = self.mesh(program)
        how: Share = "one_block_mask" if spec.balance == "ptrr" else "block_mask"
        if not plugin_of(program).shareable(program.kernel, how):
            yield Problem("kernel", "expected flex_attention with a plain BlockMask")
        if program.mask is None or mesh.data * mesh.tensor > 1:
            yield Problem("mesh", "expected a mask, and one dimension")
            return
        multiple = mesh.degree * BLOCK * (2 if spec.balance == "per_document" else 1)
        if shape.q_len != shape.kv_len or shape.q_len % multiple or not shape.q_len:
            yield Problem("shape.q_len", f"expected kv_len, a multiple of {multiple}")

    def problems_on(self, device: str, program: Program) -> Iterator[Problem]:
        if device not in ("cpu", "cuda"):
            yield Problem("mesh.method.kind", f"expected another: flex_attention is not {device}'s")
        if program.training is not None and device == "cpu":
            yield Problem("training", "expected none: flex_attention has no gradients")


PLUGIN = FlexContextParallelPlugin()
