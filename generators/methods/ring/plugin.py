"""Ring attention, written down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.base import Function, MethodPlugin
from attnfuzz.generators.methods.local import attention
from attnfuzz.generators.methods.ring.spec import Ring
from attnfuzz.generators.methods.sharding import Sharding, chunks
from attnfuzz.generators.methods.ulysses.plugin import redistributed
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene, indented

MERGE = '''\
def merge(out, lse, other, other_lse):
    """Attention to the keys of both."""
    total = torch.logaddexp(lse, other_lse)
    shift = total.masked_fill(total == float("-inf"), 0)
    return (lse - shift).exp() * out + (other_lse - shift).exp() * other, total
'''


class RingPlugin(MethodPlugin[Ring]):
    """The block is SDPA's meaning in plain operations; sums over blocks are kept in float32."""

    spec_class = Ring
    traced = False

    def set_up(self, scene: Scene) -> list[str]:
        sharding = self.sharding(scene.program)
        size, own = sharding.size, sharding.own_mesh
        lines = [f"RANK, SIZE, GROUP = {own}.get_local_rank(), {size}, {own}.get_group()"]
        lengths = self.key_lengths(scene.program)
        if len(set(lengths)) > 1:
            lines.append(f"LENGTHS = {lengths}")
        length = scene.program.shape.q_len
        match self.spec(scene.program).order:
            case "zigzag":
                lines.append(f"parts = torch.arange({length}).view({2 * size}, -1)")
                pairs = f"(parts[:{size}], parts[{size}:].flip(0))"
                lines.append(f"ORDER = torch.stack({pairs}, dim=1).flatten()")
            case "striped":
                lines.append(f"ORDER = torch.arange({length}).view(-1, {size}).T.flatten()")
        return lines

    def sharding(self, program: Program) -> Sharding:
        """How the program is sharded."""
        return Sharding(program, self.shared, self.spec(program).ulysses)

    def key_lengths(self, program: Program) -> list[int]:
        """How many keys each rank of the ring has."""
        return chunks(program.shape.kv_len, self.sharding(program).size)

    def functions(
        self, scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
    ) -> list[Function]:
        sharding, masked = self.sharding(scene.program), bool(inputs.arguments)
        shape = plugin.mask_shape(scene) if masked else ()
        writer = _Writer(scene, sharding, len(set(self.key_lengths(scene.program))) > 1, shape)
        ordered = self.spec(scene.program).order != "contiguous"
        lines = ["q, k, v = (t[:, :, ORDER] for t in (q, k, v))"] if ordered else []
        if ordered and masked:
            rows = "[..., ORDER, :]" if shape[-2] > 1 else ""
            columns = "[..., ORDER]" if shape[-1] > 1 else ""
            lines += [f"attn_mask = attn_mask{rows}{columns}"] if rows or columns else []
        if masked:
            last = f"Shard({len(shape) - 2})" if shape[-2] > 1 else "Replicate()"
            lines += sharding.shard_mask("attn_mask", shape, last)
        parts, around = "shard(q), shard(k), shard(v)", list[Function]()
        ring = "Ring.apply({})"
        if sharding.inner > 1:
            parts = "to_heads(shard(q)), to_heads(shard(k)), to_heads(shard(v))"
            ring = "to_length(Ring.apply({}))"
            around = [
                redistributed("to_heads", "More of the length, of fewer heads.", sharding, 2, 1),
                redistributed("to_length", "Less of the length, of more heads.", sharding, 1, 2),
            ]
        given = ", ".join([parts, *inputs.arguments, "attend"])
        back = "[:, :, ORDER.argsort()]" if ordered else ""
        lines.append(f"return unshard({ring.format(given)}){back}")
        return [
            sharding.shard(), sharding.unshard(), *around, writer.block(), MERGE.splitlines(),
            writer.rotate(), writer.ring(scene.program.training is not None),
            attention(scene, names, lines),
        ]  # fmt: skip

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


class _Writer:
    """Writes the functions of one ring; `mask` is the mask's shape, () for none."""

    def __init__(
        self, scene: Scene, sharding: Sharding, uneven: bool, mask: tuple[int, ...]
    ) -> None:
        self.scene, self.sharding, self.uneven = scene, sharding, uneven
        self.masked, self.splits = bool(mask), bool(mask) and mask[-1] > 1
        kernel = scene.program.kernel
        self.scale = scene.scale_text(getattr(kernel, "scale", None))
        half = scene.program.q.dtype in ("bfloat16", "float16")
        self.wide = ".float()" if half else ""
        self.mask = ", mask" if self.masked else ""

    def scores(self) -> list[str]:
        lines = [f"scores = {self.scale} * (q @ k.mT){self.wide}"]
        if self.masked:
            lines.append('scores = scores.masked_fill(~mask, float("-inf"))')
        return lines

    def shifted(self) -> str:
        return '(scores - lse.masked_fill(lse == float("-inf"), 0)).exp()'

    def block(self) -> Function:
        """Attention to one rank's keys."""
        narrow = ".to(v.dtype)" if self.wide else ""
        wide = f"({'probs' + narrow} @ v){self.wide}" if self.wide else "probs @ v"
        return [
            f"def attend(q, k, v{self.mask}):",
            '    """Attention to some of the keys, and its log-sum-exp."""',
            *indented(self.scores()),
            "    lse = scores.logsumexp(dim=-1, keepdim=True)",
            f"    probs = {self.shifted()}",
            f"    return {wide}, lse",
        ]

    def rotate(self) -> Function:
        """Sending on."""
        fresh = "torch.empty_like(t)"
        if self.uneven:
            size = "(*t.shape[:2], LENGTHS[(RANK - step) % SIZE], t.shape[3])"
            fresh = f"t.new_empty({size})"
        lines = ["tensors = [t.contiguous() for t in tensors]"]
        if self.sharding.size == 1:
            lines = ["return tensors  # there is nobody else"]
        else:
            to, source = "group_peer=(RANK + 1) % SIZE", "group_peer=(RANK - 1) % SIZE"
            lines += [
                f"received = [{fresh} for t in tensors]",
                f"ops = [dist.P2POp(dist.isend, t, group=GROUP, {to}) for t in tensors]",
                f"ops += [dist.P2POp(dist.irecv, t, group=GROUP, {source}) for t in received]",
                "for work in dist.batch_isend_irecv(ops):", "    work.wait()", "return received",
            ]  # fmt: skip
        step = "step, " if self.uneven else ""
        doc = '    """To the next rank, from the one before."""'
        return [f"def rotate({step}*tensors):", doc, *indented(lines)]

    def part(self, step: str) -> str:
        """The columns of the mask of the keys that are there at that step."""
        if not self.masked:
            return ""
        if not self.splits:
            return ", mask"
        source = f"(RANK - {step}) % SIZE" if step != "0" else "RANK"
        return f", masks[{source}]"

    def split(self) -> list[str]:
        if not self.splits:
            return []
        cut = "LENGTHS" if self.uneven else str(chunks(*self._keys())[0])
        return [f"masks = mask.split({cut}, dim=-1)"]

    def _keys(self) -> tuple[int, int]:
        return self.scene.program.shape.kv_len, self.sharding.size

    def ring(self, trains: bool) -> Function:
        """The autograd function."""
        step = "step, " if self.uneven else ""
        back = ".to(q.dtype)" if self.wide else ""
        own = ["kv = k, v"] if trains else []
        saved = f"q, *kv{self.mask}, out, lse"
        keep = [f"ctx.save_for_backward({saved})"] if trains else []
        forward = [
            *own, *self.split(),
            f"out, lse = attend(q, k, v{self.part('0')})",
            "for step in range(1, SIZE):",
            f"    k, v = rotate({step}k, v)",
            f"    out, lse = merge(out, lse, *attend(q, k, v{self.part('step')}))",
            *keep, f"return out{back}",
        ]  # fmt: skip
        lines = [
            "class Ring(torch.autograd.Function):", "    @staticmethod",
            f"    def forward(ctx, q, k, v{self.mask}, attend):", *indented(forward, 2),
        ]  # fmt: skip
        if not trains:
            return lines
        after = "step + 1, " if self.uneven else ""
        inner = ["mask = masks[(RANK - step) % SIZE]"] if self.splits else []
        grads = [
            f"q, k, v{self.mask}, out, lse = ctx.saved_tensors", *self.split(),
            f"dout = dout{self.wide}" if self.wide else "",
            "delta = (dout * out).sum(dim=-1, keepdim=True)",
            "dq, dk, dv = torch.zeros_like(out[..., :1]), torch.zeros_like(k), torch.zeros_like(v)",
            "for step in range(SIZE):",
            *indented([*inner, *self.scores(), f"probs = {self.shifted()}"]),
            f"    ds = {self.scale} * probs * (dout @ v{self.wide}.mT - delta)",
            f"    dq = dq + ds @ k{self.wide}",
            f"    dk, dv = dk + ds.mT @ q{self.wide}, dv + probs.mT @ dout",
            f"    k, v, dk, dv = rotate({after}k, v, dk, dv)",
            f"return {self.returned()}",
        ]  # fmt: skip
        grads = [line for line in grads if line]
        return [
            *lines,
            "",
            "    @staticmethod",
            "    def backward(ctx, dout):",
            *indented(grads, 2),
        ]

    def returned(self) -> str:
        back = ".to(q.dtype)" if self.wide else ""
        nothing = ", None" * (1 + self.masked)
        return f"dq{back}, dk{back}, dv{back}{nothing}"


PLUGIN = RingPlugin()
