"""The functions of a ring, as text: a block, merging, sending on, and the way back."""

from __future__ import annotations

from attnfuzz.generators.methods.base import Function
from attnfuzz.generators.methods.sharding import Sharding, chunks
from attnfuzz.generators.render.scene import Scene, indented

INFINITE = 'masked_fill({} == float("-inf"), 0)'


class Writer:
    """Writes the functions of one ring. `lengths`: how many keys each rank has. `mask` is the
    mask's shape, () for none. `returns_lse`: the log-sum-exp is a result too."""

    def __init__(
        self,
        scene: Scene,
        sharding: Sharding,
        lengths: list[int],
        mask: tuple[int, ...],
        returns_lse: bool,
    ) -> None:
        self.scene, self.sharding, self.returns_lse = scene, sharding, returns_lse
        self.uneven = len(set(lengths)) > 1
        self.masked, self.splits = bool(mask), bool(mask) and mask[-1] > 1
        self.may_be_dead = self.masked or 0 in lengths
        """Whether some query may see no key of a block."""
        kernel = scene.program.kernel
        self.scale = scene.scale_text(getattr(kernel, "scale", None))
        half = scene.program.q.dtype in ("bfloat16", "float16")
        self.wide = ".float()" if half else ""
        self.narrowed = ".to(q.dtype)" if half else ""
        self.mask = ", mask" if self.masked else ""
        self.step = "step, " if self.uneven else ""

    def steps(self) -> list[Function]:
        """What a step is made of."""
        alone = self.sharding.size == 1 and self.scene.program.training is None
        return [self.block(), *([] if alone else [self.merge(), self.rotate()])]

    def scores(self) -> list[str]:
        """Statements for the scores of a block."""
        lines = [f"scores = {self.scale} * (q @ k.mT){self.wide}"]
        if self.masked:
            lines.append('scores = scores.masked_fill(~mask, float("-inf"))')
        return lines

    def shifted(self) -> str:
        """The probabilities, of scores and their log-sum-exp."""
        lse = f"lse.{INFINITE.format('lse')}" if self.may_be_dead else "lse"
        return f"(scores - {lse}).exp()"

    def block(self) -> Function:
        """Attention to one rank's keys."""
        wide = f"(probs.to(v.dtype) @ v){self.wide}" if self.wide else "probs @ v"
        return [
            f"def attend(q, k, v{self.mask}):",
            '    """Attention to some of the keys, and its log-sum-exp."""',
            *indented(self.scores()),
            "    lse = scores.logsumexp(dim=-1, keepdim=True)",
            f"    probs = {self.shifted()}",
            f"    return {wide}, lse",
        ]

    def merge(self) -> Function:
        """The results of two blocks as one."""
        lines, shift = ["total = torch.logaddexp(lse, other_lse)"], "total"
        if self.may_be_dead:
            shift = "shift"
            lines.append(f"shift = total.{INFINITE.format('total')}")
        both = f"(lse - {shift}).exp() * out + (other_lse - {shift}).exp() * other"
        return [
            "def merge(out, lse, other, other_lse):",
            '    """Attention to the keys of both."""',
            *indented([*lines, f"return {both}, total"]),
        ]

    def rotate(self) -> Function:
        """Sending on."""
        fresh = "t.new_empty(t.shape)"
        if self.uneven:
            size = "(*t.shape[:2], LENGTHS[(RANK - step) % SIZE], t.shape[3])"
            fresh = f"t.new_empty({size})"
        if self.sharding.size == 1:
            lines = ["return tensors  # there is nobody else"]
        else:
            to, source = "(RANK + 1) % SIZE", "(RANK - 1) % SIZE"
            if not self.sharding.is_flat:
                to, source = (f"group=GROUP, group_peer={peer}" for peer in (to, source))
            lines = [
                f"received = [{fresh} for t in tensors]",
                f"ops = [dist.P2POp(dist.isend, t.contiguous(), {to}) for t in tensors]",
                f"ops += [dist.P2POp(dist.irecv, t, {source}) for t in received]",
                "for work in dist.batch_isend_irecv(ops):", "    work.wait()", "return received",
            ]  # fmt: skip
        doc = '    """To the next rank, from the one before."""'
        return [f"def rotate({self.step}*tensors):", doc, *indented(lines)]

    def part(self, step: str) -> str:
        """The columns of the mask of the keys that are there at that step."""
        if not self.masked:
            return ""
        if not self.splits:
            return ", mask"
        source = f"(RANK - {step}) % SIZE" if step != "0" else "RANK"
        return f", masks[{source}]"

    def split(self, mask: str = "mask") -> list[str]:
        """The statement that cuts the `mask` of that name by the ranks' keys."""
        if not self.splits:
            return []
        length = self.scene.program.shape.kv_len
        cut = "LENGTHS" if self.uneven else str(chunks(length, self.sharding.size)[0])
        return [f"masks = {mask}.split({cut}, dim=-1)"]

    def forward(self, mask: str = "mask") -> list[str]:
        """Statements for `out` and `lse` of q, k and v, and of the `mask` of that name."""
        named = [f"mask = {mask}"] if self.masked and not self.splits and mask != "mask" else []
        lines = [*named, *self.split(mask), f"out, lse = attend(q, k, v{self.part('0')})"]
        if self.sharding.size == 1:
            return lines
        return [
            *lines,
            "for step in range(1, SIZE):",
            f"    k, v = rotate({self.step}k, v)",
            f"    out, lse = merge(out, lse, *attend(q, k, v{self.part('step')}))",
        ]

    def autograd(self) -> Function:
        """The autograd function."""
        result, grads = f"out{self.narrowed}", "dout"
        if self.returns_lse:
            result, grads = f"{result}, lse", "dout, dlse"
        return [
            "class Ring(torch.autograd.Function):", "    @staticmethod",
            f"    def forward(ctx, q, k, v{self.mask}, attend):",
            *indented(["kv = k, v", *self.forward()], 2),
            f"        ctx.save_for_backward(q, *kv{self.mask}, out, lse)",
            f"        return {result}",
            "",
            "    @staticmethod",
            f"    def backward(ctx, {grads}):",
            *indented(self.backward(), 2),
        ]  # fmt: skip

    def backward(self) -> list[str]:
        """Statements of the way back."""
        after = "step + 1, " if self.uneven else ""
        inner = ["mask = masks[(RANK - step) % SIZE]"] if self.splits else []
        of_lse = " - dlse" if self.returns_lse else ""
        back = self.narrowed
        return [
            f"q, k, v{self.mask}, out, lse = ctx.saved_tensors", *self.split(),
            *([f"dout = dout{self.wide}"] if self.wide else []),
            f"delta = (dout * out).sum(dim=-1, keepdim=True){of_lse}",
            "dq, dk, dv = torch.zeros_like(out[..., :1]), torch.zeros_like(k), torch.zeros_like(v)",
            "for step in range(SIZE):",
            *indented([*inner, *self.scores(), f"probs = {self.shifted()}"]),
            f"    ds = {self.scale} * probs * (dout @ v{self.wide}.mT - delta)",
            f"    dq = dq + ds @ k{self.wide}",
            f"    dk, dv = dk + ds.mT @ q{self.wide}, dv + probs.mT @ dout",
            f"    k, v, dk, dv = rotate({after}k, v, dk, dv)",
            f"return dq{back}, dk{back}, dv{back}{', None' * (1 + self.masked)}",
        ]  # fmt: skip
