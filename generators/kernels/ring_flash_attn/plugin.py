"""The functions of the ring_flash_attn package, written down.

On a CPU they run over flash_attn's own Triton back-end, interpreted, as flash_attn itself does.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.dealing import dealt, gathered, striped, zigzag
from attnfuzz.generators.kernels.flash_attn.plugin import (
    DTYPES,
    ON_CPU,
    half,
    registered,
)
from attnfuzz.generators.kernels.flash_attn.spec import FlashAttn
from attnfuzz.generators.kernels.packing import cuts
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.ring_flash_attn.spec import RingFlashAttn
from attnfuzz.generators.kernels.system_rules import deals_out, with_whole_parts, without
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.scene import Scene

FUNCTIONS = {
    "contiguous": "ring_flash_attn_func",
    "zigzag": "zigzag_ring_flash_attn_func",
    "striped": "stripe_flash_attn_func",
    "llama3": "llama3_flash_attn_varlen_func",
}
CAUSAL = ("zigzag", "striped")
"""Rings that take nothing else."""

WITHOUT_ADAPTERS = (
    "# Its adapters, which are not called here, want a transformers of before 5.",
    'sys.modules["ring_flash_attn.adapters"] = Mock()',
    'ring_flash_attn = importlib.import_module("ring_flash_attn")',
)


def compiles_a_ring(program: Program) -> bool:
    """Whether it is compiled, with sends between ranks."""
    kernel = program.kernel
    assert isinstance(kernel, RingFlashAttn)
    return program.compile is not None and kernel.ring != "llama3"


def compiles_llama3(program: Program) -> bool:
    """Whether it is compiled, and gathers keys and values while it computes."""
    return program.compile is not None and not compiles_a_ring(program)


def parts_of_a_rank(ring: str) -> int:
    """The least number of positions that each rank has to have: zigzag cuts them in two, and
    striped calls the kernel without the first or the last of them."""
    return 2 if ring in CAUSAL else 1


class RingFlashAttnPlugin(KernelPlugin[RingFlashAttn]):
    """Every rank has all of q, k and v, takes its part, and puts the results together again:
    DTensor does both, so that gradients are those of the whole."""

    spec_class = RingFlashAttn
    package = "ring_flash_attn"
    judged_in_issues_by = "flash_attn"
    interchangeable = False
    spreads_itself = True
    refusals = (
        Refusal(
            pattern=r"P2P compilation disabled for P2POp construction",
            why="dynamo does not trace sends between ranks unless it is told to",
            needs=compiles_a_ring,
        ),
        Refusal(
            pattern=r"async_op=True for distributed collectives",
            why="dynamo does not trace collectives that are waited for later",
            needs=compiles_llama3,
        ),
    )

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        called = "_flash_attn_varlen" if spec.ring == "llama3" else "_flash_attn"
        passes = ("forward", "backward")[: 2 if scene.program.training else 1]
        return Inputs(
            environment=ON_CPU,
            imports=[
                "import importlib",
                "import sys",
                "from unittest.mock import Mock",
                "from flash_attn import flash_attn_interface",
            ],
            set_up=[
                *registered(tuple(f"{called}_{one}" for one in passes)),
                *WITHOUT_ADAPTERS,
            ],
            globals=_globals(scene, spec),
        )

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        order = _order(scene, spec)
        given, undone = ["q", "k", "v"], ""
        if spec.ring == "llama3":
            given = ["q[0]", "k[0]", "v[0]", "*cuts", str(spec.heads_k_stride), "local_k_slice"]
            undone = "[None]"
        given += ["causal=True"] if spec.causal else []
        given += [f"softmax_scale={spec.scale!r}"] if spec.scale is not None else []
        name = f"ring_flash_attn.{FUNCTIONS[spec.ring]}"
        statements, result = gathered(f"{name}({', '.join(given)}){undone}", order)
        return Body([result], [*dealt(order), *statements])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify, hidden = self.spec(scene.program), [], ""
        if spec.causal:
            hidden = f"torch.ones({scene.q_len}, {scene.kv_len}, dtype=torch.bool).triu(1)"
        if spec.sequences > 1:
            owner = f"torch.bucketize(torch.arange({scene.q_len}), cu_seqlens[1:], right=True)"
            modify.append(f"row = {owner}")
            apart = "row[:, None] != row"
            hidden = f"({apart}) | {hidden}" if hidden else apart
        if hidden:
            modify.append(f'scores = scores.masked_fill({hidden}, float("-inf"))')
        return Meaning(scene.scale_text(spec.scale), modify)

    # What it supports.

    def distributable(self, kernel: RingFlashAttn) -> bool:
        return True

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel, mesh = program, self.spec(program), program.mesh
        if mesh is None or mesh.ranks != "processes":
            yield Problem("mesh", "expected two processes or more with ring_flash_attn")
            return
        yield from without(p, "ring_flash_attn", mesh=True)
        shape, packs = p.shape, kernel.ring == "llama3"
        for key, wrong, why in (
            ("mask", p.mask is not None, "none: ring_flash_attn has causal"),
            ("packed", p.packed != "none", "none with ring_flash_attn"),
            ("surround", p.surround.rope or p.surround.qk_norm, "the default"),
            ("shape.v_head_dim", shape.v_head_dim not in (None, shape.head_dim), "head_dim"),
            ("kernel.causal", kernel.ring in CAUSAL and not kernel.causal, "true"),
            ("shape.batch", packs and shape.batch != 1, "1 for llama3: it has sequences"),
            ("calls", packs and p.calls, "none for llama3, whose cuts are made once"),
            ("kernel.sequences", not packs and kernel.sequences != 1, "1 but for llama3"),
            ("kernel.sequences", packs and shape.q_len < _least(kernel), "fewer, none empty"),
            ("kernel.heads_k_stride", not packs and kernel.heads_k_stride != 1, "1"),
            (
                "kernel.heads_k_stride",
                packs and shape.kv_heads % kernel.heads_k_stride,
                f"a divisor of kv_heads ({shape.kv_heads})",
            ),
        ):
            if wrong:
                yield Problem(key, f"expected {why}")
        for name in ("q", "k", "v"):
            if getattr(p, name).dtype not in DTYPES:
                yield Problem(f"{name}.dtype", "expected float16 for flash_attn on a CPU")
        parts = mesh.world_size * parts_of_a_rank(kernel.ring)
        yield from deals_out(p, "ring_flash_attn", parts)

    # How its programs are simplified.

    def plain(self, kernel: RingFlashAttn) -> RingFlashAttn:
        return RingFlashAttn(ring=kernel.ring, causal=kernel.ring in CAUSAL)

    def features(self, program: Program) -> Iterator[str]:
        yield from super().features(program)
        for name in ("sequences", "heads_k_stride"):
            if getattr(self.spec(program), name) > 1:
                yield f"kernel.ring_flash_attn.{name}"

    def underneath(self, program: Program) -> Iterator[Program]:
        """flash_attn on the whole."""
        kernel = self.spec(program)
        below = FlashAttn(
            function="varlen" if kernel.ring == "llama3" else "func",
            scale=kernel.scale,
            causal=kernel.causal,
            sequences=kernel.sequences,
        )
        yield changed(program, kernel=below, mesh=None)

    def fitted(self, program: Program) -> Program:
        """Lengths that the ranks can share are the next larger ones."""
        kernel, mesh = self.spec(program), program.mesh
        if kernel.ring in CAUSAL:
            kernel = changed(kernel, causal=True)
        q, k, v = (half(entry) for entry in (program.q, program.k, program.v))
        p = changed(program, kernel=kernel, q=q, k=k, v=v, mask=None, score_mod=None)
        if mesh is None:
            return p
        parts = mesh.world_size * parts_of_a_rank(kernel.ring)
        return with_whole_parts(p, parts, _least(kernel))


def _least(kernel: RingFlashAttn) -> int:
    """The shortest whole in which none of the sequences is empty."""
    return kernel.sequences * (kernel.sequences + 1) // 2


def _globals(scene: Scene, spec: RingFlashAttn) -> list[str]:
    """Statements for the processes, and for where llama3's sequences begin on each."""
    mesh = scene.program.mesh
    assert mesh is not None
    made = [f'MESH = dist.init_device_mesh("cpu", ({mesh.world_size},))']
    if spec.ring != "llama3":
        return made
    given = f"cu_seqlens, {spec.causal}, dist.get_rank(), {mesh.world_size}"
    return [
        *made,
        f"cu_seqlens = torch.tensor({cuts(scene.q_len, spec.sequences)}, dtype=torch.int32)",
        f"*cuts, local_k_slice = ring_flash_attn.llama3_flash_attn_prepare_cu_seqlens({given})",
    ]


def _order(scene: Scene, spec: RingFlashAttn) -> str | None:
    """An expression for the order in which the tokens are dealt out; None where it is theirs."""
    mesh = scene.program.mesh
    assert mesh is not None
    if spec.ring == "zigzag":
        return zigzag(scene.q_len, mesh.world_size)
    return striped(scene.q_len, mesh.world_size) if spec.ring == "striped" else None


PLUGIN = RingFlashAttnPlugin()
