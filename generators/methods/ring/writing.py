"""The functions of a ring, as text: a block, merging, sending on, and the way back."""

from __future__ import annotations

from attnfuzz.generators.methods.base import Function
from attnfuzz.generators.methods.local import compiles_locally
from attnfuzz.generators.methods.sharding import Sharding, chunks
from attnfuzz.generators.render.scene import Scene, indented


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
        self.masked = bool(mask)
        self.splits = self.masked and mask[-1] > 1 and sharding.size > 1
        self.may_be_dead = self.masked or 0 in lengths
        """Whether some query may see no key of a block."""
        kernel = scene.program.kernel
        self.scale = scene.scale_text(getattr(kernel, "scale", None))
        half = scene.program.q.dtype in ("bfloat16", "float16")
        self.wide = ".float()" if half else ""
        self.narrowed = ".to(q.dtype)" if half else ""
        self.mask = ", mask" if self.masked else ""
        training, projected = scene.program.training, scene.program.surround.projections
        self.trains = training is not None
        self.learned = [n for n in "qkv" if training and (projected or n in training.wrt)]
        """Those of q, k and v that get a gradient; no other is computed."""
        self.given = ", attend" if compiles_locally(scene.program) else ""

    def steps(self) -> list[Function]:
        """What a step is made of; where it goes forward only, sending is a part of that."""
        alone = self.sharding.size == 1 or not self.trains
        return [self.block(), *([] if alone else [self.rotate()])]

    def scores(self) -> list[str]:
        """Statements for the scores of a block."""
        lines = [f"scores = {self.scale} * (q @ k.mT){self.wide}"]
        if self.masked:
            lines.append('scores = scores.masked_fill(~mask, float("-inf"))')
        return lines

    def block(self) -> Function:
        """Attention to one rank's keys, and its log-sum-exp."""
        unseen = ".masked_fill(~mask, 0)" if self.masked else ""
        narrowed = ".to(v.dtype)" if self.wide else ""
        lines, probs = self.scores(), f"torch.softmax(scores, dim=-1){unseen}{narrowed}"
        out = f"{probs} @ v"
        if unseen or narrowed:
            lines.append(f"probs = {probs}")
            out = f"(probs @ v){self.wide}" if self.wide else "probs @ v"
        return [
            f"def attend(q, k, v{self.mask}):",
            *indented(lines),
            f"    return {out}, scores.logsumexp(dim=-1, keepdim=True)",
        ]

    def merged(self, received: str, part: str, last: bool) -> list[str]:
        """Statements that merge attention to the keys `received` into `out`, and into `lse` but
        where it is the `last` that needs it."""
        known = ".nan_to_num()" if self.may_be_dead else ""
        return [
            f"other, other_lse = attend(q, {received}{part})",
            f"out = torch.lerp(out, other, (other_lse - lse){known}.sigmoid())",
            *([] if last else ["lse = torch.logaddexp(lse, other_lse)"]),
        ]

    def rotate(self) -> Function:
        """Sending on: to the next rank, from the one before."""
        step = "step, " if self.uneven else ""
        lines = [*self.sending("tensors", "step"), "return received"]
        return [f"def rotate({step}*tensors):", *indented(lines)]

    def sending(self, tensors: str, step: str) -> list[str]:
        """Statements that send `tensors` to the next rank: `received` are the one before's."""
        fresh = "t.new_empty(t.shape)"
        if self.uneven:
            size = f"(*t.shape[:2], LENGTHS[(RANK - {step}) % SIZE], t.shape[3])"
            fresh = f"t.new_empty({size})"
        to, source = "(RANK + 1) % SIZE", "(RANK - 1) % SIZE"
        if self.sharding.is_flat:
            sending = [f"ops = [dist.P2POp(dist.isend, t.contiguous(), {to}) for t in {tensors}]"]
        else:
            to, source = (f"group=GROUP, group_peer={peer}" for peer in (to, source))
            sending = [
                f"sent = [t.contiguous() for t in {tensors}]",
                f"ops = [dist.P2POp(dist.isend, t, {to}) for t in sent]",
            ]
        return [
            f"received = [{fresh} for t in {tensors}]", *sending,
            f"ops += [dist.P2POp(dist.irecv, t, {source}) for t in received]",
            "for work in dist.batch_isend_irecv(ops):", "    work.wait()",
        ]  # fmt: skip

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
        size = self.sharding.size
        if size == 1:
            return lines
        lse_needed = self.trains or self.returns_lse
        if size == 2:
            if self.trains:
                of_other = f"*rotate({'1, ' if self.uneven else ''}k, v)"
                return [*lines, *self.merged(of_other, self.part("1"), not lse_needed)]
            merged = self.merged("*received", self.part("1"), not lse_needed)
            return [*lines, *self.sending("(k, v)", "1"), *merged]
        received = [*self.sending("(k, v)", "step"), "k, v = received"]
        if self.trains:
            received = [f"k, v = rotate({'step, ' if self.uneven else ''}k, v)"]
        steps = [*received, *self.merged("k, v", self.part("step"), last=False)]
        return [*lines, "for step in range(1, SIZE):", *indented(steps)]

    def autograd(self) -> Function:
        """The autograd function."""
        moved_on = self.sharding.size > 2
        saved = f"q, {'*kv' if moved_on else 'k, v'}{self.mask}, out, lse"
        result, grads = f"out{self.narrowed}", "dout"
        if self.returns_lse:
            result, grads = f"{result}, lse", "dout, dlse"
        return [
            "class Ring(torch.autograd.Function):", "    @staticmethod",
            f"    def forward(ctx, q, k, v{self.mask}{self.given}):",
            *(["        kv = k, v"] if moved_on else []),
            *indented(self.forward(), 2),
            f"        ctx.save_for_backward({saved})",
            f"        return {result}",
            "",
            "    @staticmethod",
            f"    def backward(ctx, {grads}):",
            *indented(self.backward(), 2),
        ]  # fmt: skip

    def backward(self) -> list[str]:
        """Statements of the way back."""
        learned, wide = self.learned, self.wide
        alone, of_scores = self.sharding.size == 1, learned != ["v"]
        of_lse = " - dlse" if self.returns_lse else ""
        lse = 'lse.masked_fill(lse == float("-inf"), 0)' if self.may_be_dead else "lse"
        part = self.part("0" if alone else "step").removeprefix(", ")
        added = {"q": f"ds @ k{wide}", "k": f"ds.mT @ q{wide}", "v": "probs.mT @ dout"}
        grads = ", ".join(f"d{name}" for name in learned)
        moving = ", ".join(["k", "v", *(f"d{name}" for name in learned if name != "q")])
        ds = f"ds = {self.scale} * probs * (dout @ v{wide}.mT - delta)"
        *scores, last = self.scores()
        value = "scores" if scores else last.removeprefix("scores = ")
        step = [
            *([f"mask = {part}"] if self.splits else []),
            *([*scores, last] if scores else []),
            f"probs = ({value} - {lse}).exp()",
            *([ds] if of_scores else []),
            f"{grads} = {', '.join(f'd{name} + {added[name]}' for name in learned)}",
            f"{moving} = rotate({'step + 1, ' if self.uneven else ''}{moving})",
        ]
        narrow = {name: f"d{name}{self.narrowed}" if name in learned else "None" for name in "qkv"}
        results = [*narrow.values(), *["None"] * (self.masked + bool(self.given))]
        return [
            f"q, k, v{self.mask}, out, lse = ctx.saved_tensors", *self.split(),
            *([f"dout = dout{wide}"] if wide else []),
            *([f"delta = (dout * out).sum(dim=-1, keepdim=True){of_lse}"] * of_scores),
            f"{' = '.join(f'd{name}' for name in learned)} = 0",
            *(step[:-1] if alone else ["for step in range(SIZE):", *indented(step)]),
            f"return {', '.join(results)}",
        ]  # fmt: skip
