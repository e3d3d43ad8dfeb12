"""Long-context attention of yunchang (xDiT), written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.conditions import differentiates
from attnfuzz.generators.kernels.dealing import dealt, gathered, striped, zigzag
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.system_rules import deals_out, one_dtype, with_whole_parts
from attnfuzz.generators.kernels.yunchang.spec import Yunchang
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Mesh, Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas

CAUSAL = ("zigzag", "strip")
"""Rings that take nothing else."""

STAND_IN = """\
@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash_attention_stand_in(q, k, v, dropout_p=0.0, is_causal=False, debug=False, scale=None):
    # CPUs do not have this operator: theirs, which is not CUDA's, computes what it returns.
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = flash(q, k, v, dropout_p, is_causal, scale=scale)
    return out, lse, None, None, q.shape[2], k.shape[2], lse.new_zeros(2), lse.new_zeros(0), out
"""


def compiles_a_ring(program: Program) -> bool:
    """Whether it is compiled, with a ring of two ranks or more."""
    kernel, mesh = program.kernel, program.mesh
    assert isinstance(kernel, Yunchang) and mesh is not None
    return program.compile is not None and mesh.world_size > kernel.ulysses


def parts_of_a_rank(ring: str) -> int:
    """The least number of positions that each rank has to have: zigzag cuts them in two, and strip
    calls the kernel without the first or the last of them."""
    return 2 if ring in CAUSAL else 1


class YunchangPlugin(KernelPlugin[Yunchang]):
    """Every rank has all of q, k and v, takes its part, and puts the results together again:
    DTensor does both, so that gradients are those of the whole."""

    spec_class = Yunchang
    package = "yunchang"
    interchangeable = False
    spreads_itself = True
    refusals = (
        Refusal(
            pattern=r"Not implemented backward for PyTorch attention types",
            why="yunchang has no backward for what torch computes a step with",
            needs=differentiates,
        ),
        Refusal(
            pattern=r"P2P compilation disabled for P2POp construction",
            why="dynamo does not trace sends between ranks unless it is told to",
            needs=compiles_a_ring,
        ),
    )

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs(globals=_groups(scene, spec))
        inputs.imports = [
            "from yunchang import LongContextAttention, set_seq_parallel_pg",
            "from yunchang.kernels import AttnType",
        ]
        if spec.attn_type == "torch_flash":
            inputs.functions.append(STAND_IN.splitlines())
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec, order = self.spec(scene.program), _order(scene, self.spec(scene.program))
        given = ["q", "k", "v", *(["causal=True"] if spec.causal else [])]
        given += [f"softmax_scale={spec.scale!r}"] if spec.scale is not None else []
        statements, result = gathered(f"attend({', '.join(given)})", order)
        return Body([result], [*dealt(order), *statements])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        if spec.causal:
            extents = commas((scene.q_len, scene.kv_len))
            later = f"torch.ones({extents}, dtype=torch.bool).triu(1)"
            modify.append(f'scores = scores.masked_fill({later}, float("-inf"))')
        return Meaning(scene.scale_text(spec.scale), modify)

    # What it supports.

    def distributable(self, kernel: Yunchang) -> bool:
        return True

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel, mesh = program, self.spec(program), program.mesh
        if mesh is None or mesh.ranks != "processes":
            yield Problem("mesh", "expected two processes or more with yunchang")
            return
        ring, rest = divmod(mesh.world_size, kernel.ulysses)
        parts = mesh.world_size * parts_of_a_rank(kernel.ring)
        shape = p.shape
        for key, wrong, why in (
            ("mask", p.mask is not None, "none: yunchang has causal"),
            ("packed", p.packed != "none", "none with yunchang"),
            ("surround", p.surround.rope or p.surround.qk_norm, "the default with yunchang"),
            ("kernel.ulysses", rest, f"a divisor of the ranks ({mesh.world_size})"),
            ("shape.q_heads", shape.q_heads % kernel.ulysses, "a multiple of kernel.ulysses"),
            ("shape.kv_heads", shape.kv_heads != shape.q_heads, "q_heads with yunchang"),
            ("shape.v_head_dim", shape.v_head_dim not in (None, shape.head_dim), "head_dim"),
            (
                "kernel.causal",
                kernel.ring in CAUSAL and not kernel.causal,
                "true with zigzag and strip",
            ),
            ("kernel.attn_type", kernel.attn_type == "torch_math" and ring > 1, "torch_flash"),
            (
                "kernel.attn_type",
                kernel.attn_type == "torch_math" and kernel.ring == "basic_pytorch",
                "torch_flash: this ring asks for no other",
            ),
        ):
            if wrong:
                yield Problem(key, f"expected {why}")
        if p.q.dtype == "float64":
            yield Problem("q.dtype", "expected another: yunchang merges blocks in float32")
        yield from one_dtype(p)
        yield from deals_out(p, "yunchang", parts)

    # How its programs are simplified.

    def plain(self, kernel: Yunchang) -> Yunchang:
        return Yunchang(ring=kernel.ring, causal=kernel.ring in CAUSAL)

    def features(self, program: Program) -> Iterator[str]:
        yield from super().features(program)
        if self.spec(program).ulysses > 1:
            yield "kernel.yunchang.ulysses"

    def fitted(self, program: Program) -> Program:
        """Lengths that the ranks can share are the next larger ones."""
        kernel, mesh = self.spec(program), program.mesh
        if kernel.ring in CAUSAL:
            kernel = changed(kernel, causal=True)
        p = changed(program, kernel=kernel, mask=None, score_mod=None)
        if mesh is None:
            return p
        parts = mesh.world_size * parts_of_a_rank(kernel.ring)
        return with_whole_parts(p, parts)


def _groups(scene: Scene, spec: Yunchang) -> list[str]:
    """Statements for the processes, their groups, and the module that is called."""
    mesh: Mesh | None = scene.program.mesh
    assert mesh is not None
    ranks = mesh.world_size
    degrees = f"{spec.ulysses}, {ranks // spec.ulysses}"
    kind = f"AttnType.{spec.attn_type.upper()}"
    return [
        'dist.init_process_group("gloo")',
        f'MESH = dist.init_device_mesh("cpu", ({ranks},))',
        f"set_seq_parallel_pg({degrees}, dist.get_rank(), {ranks})",
        f'attend = LongContextAttention(ring_impl_type="{spec.ring}", attn_type={kind})',
    ]


def _order(scene: Scene, spec: Yunchang) -> str | None:
    """An expression for the order in which the tokens are dealt out; None where it is theirs."""
    mesh = scene.program.mesh
    assert mesh is not None
    ring = mesh.world_size // spec.ulysses
    if ring == 1:
        return None
    if spec.ring == "zigzag":
        return zigzag(scene.q_len, ring)
    return striped(scene.q_len, ring) if spec.ring == "strip" else None


PLUGIN = YunchangPlugin()
