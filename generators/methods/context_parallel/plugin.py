"""torch's context parallelism of SDPA, written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.base import Function, MethodPlugin
from attnfuzz.generators.methods.context_parallel.spec import ContextParallel
from attnfuzz.generators.methods.local import attention
from attnfuzz.generators.methods.sharding import Sharding
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene

FLASH = '''\
@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash(q, k, v, p=0.0, causal=False, *_, scale=None):
    """The CPU's fused SDPA under the name of the cards', which torch's ring knows alone."""
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    none, (out, lse) = torch.tensor(0), for_cpu(q, k, v, p, causal, scale=scale)
    out, lse = torch.empty_like(q).copy_(out), lse.contiguous()  # as torch says of a card
    return out, lse, None, None, q.shape[2], k.shape[2], none, none, none
'''
FLASH_BACKWARD = """\
@torch.library.impl("aten::_scaled_dot_product_flash_attention_backward", "CPU")
def flash_backward(dout, q, k, v, out, lse, _1, _2, _3, _4, p, causal, *_, scale=None):
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return for_cpu(dout, q, k, v, out, lse, p, causal, scale=scale)
"""
EFFICIENT = '''\
@torch.library.impl("aten::_scaled_dot_product_efficient_attention", "CPU")
def efficient(q, k, v, bias, compute_lse, p=0.0, causal=False, *, scale=None):
    """The CPU's fused SDPA under the name of the cards', which torch's ring knows alone."""
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return *for_cpu(q, k, v, p, causal, scale=scale), torch.tensor(0), torch.tensor(0)
'''
EFFICIENT_BACKWARD = """\
@torch.library.impl("aten::_scaled_dot_product_efficient_attention_backward", "CPU")
def efficient_backward(dout, q, k, v, bias, out, lse, _1, _2, p, _3, causal=False, *, scale=None):
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return *for_cpu(dout, q, k, v, out, lse, p, causal, scale=scale), None
"""
KERNELS = {"flash": (FLASH, FLASH_BACKWARD), "efficient": (EFFICIENT, EFFICIENT_BACKWARD)}


class ContextParallelPlugin(MethodPlugin[ContextParallel]):
    """torch's hooks make DTensors of the local parts, and its dispatcher puts the ring in the place
    of the fused operator. Where nothing trains, torch's own functions shard and gather, which have
    no gradients and are not meant to be compiled."""

    spec_class = ContextParallel
    learns_lse = False

    def written(self, program: Program) -> Program:
        """The operator is told that it is causal, whatever the form of the mask."""
        if program.mask is None:
            return program
        kernel: Any = program.kernel
        return replace(program, kernel=replace(kernel, mask_form="is_causal"))

    def takes_calls(self, program: Program) -> bool:
        spec = self.spec(program)
        return spec.balance == "none" and spec.by == "module"

    def takes_parts(self, program: Program) -> bool:
        spec = self.spec(program)
        return spec.balance == "none" and spec.by == "module" and not spec.return_lse

    def set_up(self, scene: Scene) -> list[str]:
        spec, by_dtensor = self.spec(scene.program), self.by_dtensor(scene.program)
        if spec.by == "manager":
            return self.replacing(scene, spec)
        lines = ["cp._enable_context_parallel_dispatcher()"]
        if spec.rotate != "allgather":
            lines.append(f'cp.set_rotate_method("{spec.rotate}")')
        if by_dtensor:
            lines.append(f"cp._cp_options.enable_load_balance = {spec.balance != 'none'}")
        if spec.balance == "head_tail":
            sharding = Sharding(scene.program, self.shared)
            length, degree = scene.program.shape.q_len, sharding.mesh.degree
            arguments = f'{length}, {degree}, "{scene.device}"'
            lines.append(f"BALANCER = cp._HeadTailLoadBalancer({arguments})")
        return lines

    def functions(
        self, scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
    ) -> list[Function]:
        p, spec = scene.program, self.spec(scene.program)
        trains, by_dtensor = p.training is not None, self.by_dtensor(p)
        sharding = Sharding(p, self.shared)
        kernels = [] if scene.device != "cpu" else list(KERNELS[spec.operator][: 1 + trains])
        if spec.by == "manager":
            return [
                *(text.splitlines() for text in kernels), self.fused(scene, spec),
                ["F.scaled_dot_product_attention = scaled_dot_product_attention"],
                self.called(scene), attention(scene, names, self.by_manager(sharding)),
            ]  # fmt: skip
        lines = self.dealt_out(spec, sharding) if by_dtensor else self.by_torch(spec, sharding)
        return [
            *(text.splitlines() for text in kernels), self.module(scene, spec),
            self.parallelized(sharding), attention(scene, names, lines),
        ]  # fmt: skip

    @staticmethod
    def replacing(scene: Scene, spec: ContextParallel) -> list[str]:
        """Statements that choose what the context manager does."""
        lines = [f'cp.set_rotate_method("{spec.rotate}")'] if spec.rotate != "allgather" else []
        if spec.balance == "none":
            lines.append("cp._cp_options.enable_load_balance = False")
        return lines

    @staticmethod
    def fused(scene: Scene, spec: ContextParallel) -> Function:
        """SDPA as it is on cards, for the context manager to replace."""
        operator = f"torch.ops.aten._scaled_dot_product_{spec.operator}_attention"
        given = "q, k, v, " + ("None, True, " if spec.operator == "efficient" else "")
        return [
            "def scaled_dot_product_attention(q, k, v, is_causal=False, scale=None):",
            '    """SDPA on a card; on a CPU it calls what torch\'s ring does not know."""',
            f"    return {operator}({given}is_causal=is_causal, scale=scale)[0]",
        ]

    @staticmethod
    def called(scene: Scene) -> Function:
        """The call of SDPA, as a model has it."""
        scale = getattr(scene.program.kernel, "scale", None)
        arguments = ["q", "k", "v", *(["is_causal=True"] if scene.program.mask is not None else [])]
        arguments += [f"scale={scale!r}"] if scale is not None else []
        return [
            "def attend(q, k, v):",
            f"    return F.scaled_dot_product_attention({', '.join(arguments)})",
        ]

    @staticmethod
    def by_manager(sharding: Sharding) -> list[str]:
        """The body where the context manager shards, which resizes what it is given."""
        own = sharding.own_mesh
        return [
            "q, k, v = (t.clone(memory_format=torch.contiguous_format) for t in (q, k, v))",
            f"with cp.context_parallel({own}, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):",
            f"    return cp.context_parallel_unshard({own}, [attend(q, k, v)], [2])[0]",
        ]

    def module(self, scene: Scene, spec: ContextParallel) -> Function:
        """The module that calls the operator."""
        p = scene.program
        causal = "is_causal=True" if p.mask is not None else ""
        scale = getattr(p.kernel, "scale", None)
        arguments = ["q", "k", "v", *(["None", "True"] if spec.operator == "efficient" else [])]
        arguments += [causal] if causal else []
        arguments += [f"scale={scale!r}"] if scale is not None else []
        operator = f"torch.ops.aten._scaled_dot_product_{spec.operator}_attention"
        return [
            "class Attention(torch.nn.Module):",
            "    def forward(self, q, k, v):",
            f"        return {operator}({', '.join(arguments)})[{':2' if spec.return_lse else 0}]",
        ]

    @staticmethod
    def parallelized(sharding: Sharding) -> list[str]:
        """Statements that put torch's hooks on the module."""
        return [
            "style = cp._ContextParallel(2, cp._ContextParallel.AttentionType.SDPA)",
            f"attend = parallelize_module(Attention(), {sharding.own_mesh}, style)",
        ]

    @staticmethod
    def by_dtensor(program: Program) -> bool:
        """Whether DTensor shards and gathers: with gradients, or in what is compiled."""
        compiled = program.compile is not None and program.compile.via == "compile"
        return program.training is not None or compiled

    @staticmethod
    def dealt_out(spec: ContextParallel, sharding: Sharding) -> list[str]:
        """The body where DTensor shards."""
        lines, back = sharding.shard, ""
        if spec.balance != "none":
            lines, back = [
                "order = BALANCER._generate_indices()[0]",
                "q, k, v = (t[:, :, order] for t in (q, k, v))",
                *sharding.shard,
                "back = BALANCER._generate_indices(restore=True)[0]",
            ], "[:, :, back]"  # fmt: skip
        if spec.return_lse:
            out, lse = (f"{sharding.whole(name)}{back}" for name in ("out", "lse"))
            return [*lines, "out, lse = attend(q, k, v)", f"lse = {lse}", f"return {out}, lse"]
        return [*lines, f"return {sharding.whole('attend(q, k, v)')}{back}"]

    @staticmethod
    def by_torch(spec: ContextParallel, sharding: Sharding) -> list[str]:
        """The body where torch's functions for context parallelism shard."""
        balancer = ", BALANCER" if spec.balance != "none" else ""
        own = sharding.own_mesh
        results = "attend(q, k, v), [2, 2]" if spec.return_lse else "[attend(q, k, v)], [2]"
        whole = f"cp.context_parallel_unshard({own}, {results}{balancer})"
        return [
            f"q, k, v = cp._context_parallel_shard({own}, [q, k, v], [2, 2, 2]{balancer})",
            f"return {whole}" if spec.return_lse else f"return {whole}[0]",
        ]

    def problems(self, program: Program) -> Iterator[Problem]:
        spec, shape = self.spec(program), program.shape
        mesh, causal = self.mesh(program), program.mask is not None
        if not plugin_of(program).shareable(program.kernel, "operator"):
            yield Problem("kernel", "expected SDPA, is_causal or without a mask")
        if causal and program.mask != Causal():
            yield Problem("mask", "expected Causal or none")
        if shape.q_heads != shape.kv_heads or shape.v_head_dim not in (None, shape.head_dim):
            yield Problem("shape.q_heads", "expected kv_heads, and v_head_dim = head_dim")
        if program.q.dtype == "float64":
            yield Problem("q.dtype", "expected another: torch merges the ring's blocks in float32")
        if spec.balance != "none" and not causal:
            yield Problem("mesh.method.balance", "expected none without a causal mask")
        if causal and shape.q_len != shape.kv_len:
            yield Problem("shape.q_len", "expected kv_len with a causal mask")
        if spec.by == "manager":
            yield from self._manager_problems(program)
        multiple = mesh.degree * (2 if spec.balance != "none" else 1)
        for name in ("q_len", "kv_len"):
            if getattr(shape, name) % multiple or not getattr(shape, name):
                yield Problem(f"shape.{name}", f"expected a multiple of {multiple}")
        if not self.by_dtensor(program) and mesh.data * mesh.tensor > 1:
            yield Problem("training", "expected some: torch's functions shard one dimension alone")

    def problems_on(self, device: str, program: Program) -> Iterator[Problem]:
        if device == "cpu":
            yield from self._traced_problems(program)
        elif device != "cuda":
            yield Problem("mesh.method.kind", f"expected another: fused SDPA is not {device}'s")
        elif self.spec(program).operator == "flash" and program.q.dtype == "float32":
            yield Problem(
                "q.dtype", "expected float16 or bfloat16, as a card's flash takes no more"
            )
        elif program.shape.head_dim % 8 or program.shape.head_dim > 256:
            yield Problem("shape.head_dim", "expected a multiple of 8, at most 256")

    def _traced_problems(self, program: Program) -> Iterator[Problem]:
        """What is traced has the shapes that torch's meta functions give a card's results, which
        the CPU's kernel under a card's name has not: a log-sum-exp as long as a multiple of 32, and
        the state of a random generator, which Inductor keeps for the way back."""
        compiled = program.compile
        if compiled is None or compiled.via != "compile":
            return
        if self.spec(program).operator != "flash":
            yield Problem("mesh.method.operator", "expected flash where the whole is compiled")
        if program.training is not None and compiled.backend == "inductor":
            yield Problem("training", "expected none where the whole is compiled by Inductor")

    def _manager_problems(self, program: Program) -> Iterator[Problem]:
        mesh, compiled = self.mesh(program), program.compile
        whole = compiled is not None and compiled.via == "compile"
        for key, wrong, why in (
            ("mesh.ranks", mesh.ranks == "simulated" and mesh.world_size > 1, "processes"),
            ("mesh.method.return_lse", self.spec(program).return_lse, "false"),
            ("training", program.training is not None, "none: the manager resizes its buffers"),
            ("compile.via", whole, "local: what the manager does is not compiled"),
            ("shape.kv_len", program.shape.kv_len != program.shape.q_len, "q_len"),
        ):
            if wrong:
                yield Problem(key, f"expected {why} with mesh.method.by: manager")


PLUGIN = ContextParallelPlugin()
