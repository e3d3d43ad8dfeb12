"""What is done to a BlockMask between its creation and the call: sliced, rebuilt, cropped, copied.

Each step is a dataclass with all that is particular to it: what it writes, what it means for the
mask that is seen, and where it is valid. `generators.kernels.flex.journey` puts the steps of a
program one behind the other, `generators.kernels.flex.step_drawing` draws them.

A step leads from a mask for the extents `before` to one for the extents `after`. The extents of the
call are those after the last step, so a program's BlockMask is made for what is before the first.
The torch behind it is `torch.nn.attention.flex_attention.BlockMask`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.flex.remaking import Copied, Rebuilt, Shown
from attnfuzz.generators.kernels.flex.step import BaseStep, Block, Place, Written
from attnfuzz.generators.model.indices import STRICT, Axis
from attnfuzz.generators.render.captures import Extents
from attnfuzz.generators.render.sizes import Size, blocks, commas, plus, times

Few = Annotated[int, Field(ge=0, le=4)]
Extra = Annotated[int, Field(ge=0, le=512)]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """An index into one dimension: a `slice` of what is wanted, a `tensor` that takes it in reverse
    order, or an `int`, which leaves one entry. `start` entries are in front, `after` behind."""

    __pydantic_config__ = STRICT
    how: Literal["slice", "tensor", "int"] = "slice"
    start: Few = 0
    after: Few = 0

    def index(self, count: Size, name: str) -> str:
        """The index that leaves `count` entries; a tensor is `name`."""
        if self.how == "tensor":
            return name
        return str(self.start) if self.how == "int" else self.as_slice(count)

    def as_slice(self, count: Size) -> str:
        """What it takes, in order, as a slice: `1:3`."""
        end = str(plus(self.start + 1 if self.how == "int" else count, self._shift))
        first = str(self.start) if self.start else ""
        return f"{first}:{end}" if " " not in end or not first else f"{first} : {end}"

    @property
    def _shift(self) -> int:
        return 0 if self.how == "int" else self.start

    def tensor(self, name: str, count: Size, device: str) -> str:
        """The statement that makes the tensor `name`."""
        on = "" if device == "cpu" else f', device="{device}"'
        first = f"{self.start}, " if self.start else ""
        return f"{name} = torch.arange({first}{plus(count, self.start)}{on}).flip(0)"


@dataclass(frozen=True, kw_only=True)
class Sliced(BaseStep):
    """`block_mask[batch, heads, rows]`: an index by batch, head and block of queries. torch has the
    caller set `mask_mod` anew: "When you slice a BlockMask using [], the mask_mod attribute is
    reset. You must set it from the original BlockMask's mask_mod" (`_sliced_mask_mod_error`), here
    one that shifts its indices. Where rows are left out, `seq_lengths` is set too, as a decoding
    loop does."""

    __pydantic_config__ = STRICT
    kind: Literal["sliced"] = "sliced"
    batch: Cut | None = None
    heads: Cut | None = None
    rows: Cut | None = None

    @property
    def crops(self) -> bool:
        return self.rows is not None

    def cuts(self, place: Place) -> list[tuple[Axis, str, Cut, Size]]:
        """For each dimension that is cut: its axis, the name of its tensor, how, and how many
        entries are left."""
        rows = blocks(place.after.q_idx, place.block[0])
        every: list[tuple[Axis, str, Cut | None, Size]] = [
            ("b", "batches", self.batch, place.after.b),
            ("h", "heads", self.heads, place.after.h),
            ("q_idx", "rows", self.rows, rows),
        ]
        return [(axis, place.name(name), cut, n) for axis, name, cut, n in every if cut is not None]

    def before(self, after: Extents, block: Block) -> Extents:
        """The extents that the mask has to have; those of an axis that is alone mean nothing."""
        return Extents(
            self._entries(self.batch, after.b), self._entries(self.heads, after.h),
            self._rows(after.q_idx, block[0]), after.kv_idx,
        )  # fmt: skip

    @staticmethod
    def _entries(cut: Cut | None, count: Size) -> Size:
        if cut is None:
            return count
        return plus(1 if cut.how == "int" else count, cut.start + cut.after)

    def _rows(self, q_len: Size, edge: int) -> Size:
        if self.rows is None:
            return q_len
        if self.rows.how == "tensor":  # in reverse order a ragged block would come first
            q_len = times(blocks(q_len, edge), edge)
        return plus(q_len, (self.rows.start + self.rows.after) * edge)

    def alone(self) -> frozenset[Axis]:
        """The axes along which it leaves one entry for all."""
        taken: list[tuple[Axis, Cut | None]] = [("b", self.batch), ("h", self.heads)]
        return frozenset(axis for axis, cut in taken if cut is not None and cut.how == "int")

    def problems(self, place: Place) -> Iterator[tuple[str, str]]:
        """Fields and sentences."""
        cuts = self.cuts(place)
        if not cuts:
            yield "", "expected an index for batch, heads or rows"
        if sum(cut.how == "tensor" for _, _, cut, _ in cuts) > 1:
            yield "", "expected one tensor at most: torch takes several for pairs"
        for axis, _, _, _ in cuts:
            if axis in place.alone:
                what = "batch" if axis == "b" else "heads"
                yield f".{what}", f"expected none: there is one entry for all {what}"

    def too_long(self, q_len: int, block: Block) -> bool:
        """Whether one block of queries is taken, and `q_len` is more than that."""
        return self.rows is not None and self.rows.how == "int" and q_len > block[0]

    def write(self, place: Place) -> Written:
        """What it writes."""
        cuts = self.cuts(place)
        tensors = [(name, cut, n) for _, name, cut, n in cuts if cut.how == "tensor"]
        statements = [cut.tensor(name, n, place.device) for name, cut, n in tensors]
        given = {axis: cut.index(n, name) for axis, name, cut, n in cuts}
        wanted: tuple[Axis, ...] = ("b", "h", "q_idx")
        last = max(wanted.index(axis) for axis in given)
        index = ", ".join(given.get(axis, ":") for axis in wanted[: last + 1])
        maker = place.name("sliced_mod")
        args = ", ".join(["block_mask.mask_mod", *(name for name, _, _ in tensors)])
        statements += [f"sliced = block_mask[{index}]", f"sliced.mask_mod = {maker}({args})"]
        if self.rows is not None:
            lengths = commas((place.after.q_idx, place.after.kv_idx))
            statements.append(f"sliced.seq_lengths = ({lengths})")
        return Written([*statements, "block_mask = sliced"], (self._mod(maker, cuts, place),))

    def _mod(self, maker: str, cuts: list[tuple[Axis, str, Cut, Size]], place: Place) -> list[str]:
        """The function that shifts the indices of a mask_mod."""
        shifted: dict[Axis, str] = {}
        for axis, name, cut, _ in cuts:
            if axis == "q_idx":
                shifted[axis] = self._query(cut, name, place.block[0])
            elif cut.how == "tensor":
                shifted[axis] = f"{name}[{axis}]"
            elif cut.how == "int":
                shifted[axis] = f"torch.full_like({axis}, {cut.start})"
            elif cut.start:
                shifted[axis] = f"{axis} + {cut.start}"
        axes: tuple[Axis, ...] = ("b", "h", "q_idx", "kv_idx")
        held = ", ".join(["mask_mod", *(name for _, name, cut, _ in cuts if cut.how == "tensor")])
        return [
            f"def {maker}({held}):",
            "    def shifted(b, h, q_idx, kv_idx):",
            f"        return mask_mod({', '.join(shifted.get(axis, axis) for axis in axes)})",
            "",
            "    return shifted",
        ]

    @staticmethod
    def _query(cut: Cut, name: str, edge: int) -> str:
        if cut.how == "tensor":
            return f"{name}[q_idx // {edge}] * {edge} + q_idx % {edge}"
        return f"q_idx + {cut.start * edge}" if cut.start else "q_idx"

    def seen(self, place: Place) -> list[str]:
        """Statements for the dense `mask`, by plain indices."""
        edge, given = place.block[0], dict[Axis, str]()
        lines = []
        for axis, _, cut, count in self.cuts(place):
            if axis != "q_idx":
                given[axis] = cut.as_slice(count)
            elif cut.how == "tensor":
                position = f"torch.arange({place.after.q_idx})"
                last = plus(count, cut.start - 1)
                lines.append(f"block = {last} - {position} // {edge}")
                given[axis] = f"block * {edge} + {position} % {edge}"
            else:
                first = cut.start * edge
                end = plus(place.after.q_idx, first)
                given[axis] = f"{first} : {end}" if " " in str(end) else f"{first}:{end}"
        wanted: tuple[Axis, ...] = ("b", "h", "q_idx")
        last_axis = max(wanted.index(axis) for axis in given)
        index = ", ".join(given.get(axis, ":") for axis in wanted[: last_axis + 1])
        lines.append(f"mask = mask[{index}]")
        flipped = [
            wanted.index(axis)
            for axis, _, cut, _ in self.cuts(place)
            if cut.how == "tensor" and axis != "q_idx"
        ]
        if flipped:
            lines[-1] += f".flip({commas(tuple(flipped))})"
        return lines


@dataclass(frozen=True, kw_only=True)
class Adjusted(BaseStep):
    """`block_mask._adjust(Lq, Lkv)` of a mask for `extra` queries and keys more: it "'crops' the
    block mask to the upper left corner" (torch's words where lengths differ)."""

    __pydantic_config__ = STRICT
    kind: Literal["adjusted"] = "adjusted"
    extra: tuple[Extra, Extra] = (0, 0)

    @property
    def crops(self) -> bool:
        return any(self.extra)

    def before(self, after: Extents, block: Block) -> Extents:
        """Both lengths are longer."""
        return after._replace(
            q_idx=plus(after.q_idx, self.extra[0]), kv_idx=plus(after.kv_idx, self.extra[1])
        )

    def write(self, place: Place) -> Written:
        """What it writes."""
        lengths = commas((place.after.q_idx, place.after.kv_idx))
        return Written([f"block_mask = block_mask._adjust({lengths})"])

    def seen(self, place: Place) -> list[str]:
        """The upper left corner."""
        if not any(self.extra):
            return []
        return [f"mask = mask[:, :, :{place.after.q_idx}, :{place.after.kv_idx}]"]


Step = Annotated[Sliced | Adjusted | Rebuilt | Copied | Shown, Field(discriminator="kind")]
"""The simplest first."""
