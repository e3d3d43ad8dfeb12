"""How the steps of a BlockMask are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.kernels.flex.journey import too_long
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.flex.steps import (
    Adjusted,
    Copied,
    Cut,
    Rebuilt,
    Shown,
    Sliced,
    Step,
)
from attnfuzz.generators.model.indices import Axis
from attnfuzz.generators.model.program import Call, Shape
from attnfuzz.generators.render.captures import Extents
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted

EXTRAS = ((0, 128), (128, 0), (128, 128), (256, 256), (1, 1), (100, 300), (0, 16), (16, 16))
FURTHEST = 512
"""Queries that a mask is made for beyond those of the call: it costs as much as they are."""


class Steps:
    """Steps for the masks of a swarm: none for most."""

    def __init__(self, enabled: bool, often: bool) -> None:
        some = ((6, 1), (3, 2), (1, 3))
        plain = (5 if often else 24, 0)
        self.count: SearchStrategy[int] = weighted(plain, *some) if enabled else st.just(0)
        self.inside = one_in(3 if often else 6)
        self.full_blocks = weighted((7, True), (1, False)) if enabled else st.just(True)
        self.kind = weighted(
            (4, "sliced"), (4, "rebuilt"), (5, "copied"), (2, "adjusted"), (2, "shown")
        )
        self.of = weighted((2, "own"), (2, "partial"), (2, "whole"), (1, "drawn"), (2, "listed"))
        self.listed = weighted((3, True), (1, False))  # eager looks at no block by itself
        self.q_blocks = weighted((3, True), (1, False))
        self.through: Any = weighted((1, "to"), (1, "as_tuple"), (2, "tree"))
        self.through_outside: Any = weighted((1, "to"), (2, "as_tuple"), (3, "tree"), (2, "keyed"))
        self.extra = st.sampled_from(EXTRAS)
        self.how = weighted((4, "slice"), (2, "tensor"), (2, "int"))
        self.some = weighted((2, 0), (3, 1), (1, 2), (1, 3))
        self.cuts = weighted(
            (4, ("rows",)), (3, ("batch",)), (2, ("heads",)), (1, ("batch", "heads")),
            (2, ("batch", "heads", "rows")), (1, ("batch", "rows")),
        )  # fmt: skip
        self.makers: dict[str, Callable[..., Step | None]] = {
            "sliced": self._sliced,
            "rebuilt": self._rebuilt,
            "copied": self._copied,
            "adjusted": lambda draw, *_: Adjusted(extra=draw(self.extra)),
            "shown": lambda draw, spec, *_: Shown() if spec.made == "outside" else None,
        }

    def draw(
        self, draw: Draw, spec: BlockMaskSpec, shape: Shape, differentiates: bool
    ) -> BlockMaskSpec:
        """The BlockMask `spec` of a program of that shape, with its steps."""
        count = draw(self.count)
        if 0 in (shape.q_len, shape.kv_len):
            return spec
        steps: list[Step] = []
        alone: set[Axis] = {*(() if spec.batch else ("b",)), *(() if spec.heads else ("h",))}
        for _ in range(count):
            step = self.makers[draw(self.kind)](draw, spec, shape, alone, steps, differentiates)
            if step is not None:
                steps.append(step)
                alone |= step.alone()
        if steps and spec.made == "outside" and draw(self.listed):
            steps.append(Rebuilt(of="listed"))
        return _as_slices(replace(spec, steps=tuple(steps)), shape)

    def _sliced(
        self, draw: Draw, spec: BlockMaskSpec, shape: Shape, alone: set[Axis], *_: object
    ) -> Sliced | None:
        names = draw(self.cuts)
        cuts: dict[str, Cut] = {}
        for name in names:
            how, start, after = draw(self.how), draw(self.some), draw(self.some)
            if (name == "batch" and "b" in alone) or (name == "heads" and "h" in alone):
                continue
            if name == "rows":
                edge = spec.block_size[0]
                start, after = min(start, FURTHEST // edge), min(after, FURTHEST // edge)
                how = "slice" if how == "int" and shape.q_len > edge else how
            if how == "tensor" and any(cut.how == "tensor" for cut in cuts.values()):
                how = "slice"
            cuts[name] = Cut(how=how, start=start, after=after)
        if not cuts:
            return None
        return Sliced(batch=cuts.get("batch"), heads=cuts.get("heads"), rows=cuts.get("rows"))

    def _copied(self, draw: Draw, spec: BlockMaskSpec, *_: object) -> Copied:
        outside = spec.made == "outside"
        return Copied(through=draw(self.through_outside if outside else self.through))

    def _rebuilt(
        self,
        draw: Draw,
        spec: BlockMaskSpec,
        shape: Shape,
        alone: set[Axis],
        steps: list[Step],
        differentiates: bool,
    ) -> Rebuilt:
        of, q_blocks = draw(self.of), draw(self.q_blocks) or differentiates
        if of == "whole" and (any(spec.built_for_extra) or any(step.crops for step in steps)):
            of = "partial"
        if of == "drawn" and (spec.made != "outside" or _many_blocks(spec, shape)):
            of = "partial"
        return Rebuilt(of=of, q_blocks=q_blocks)


MOST_DRAWN = 4000
"""Blocks that are drawn, one by one, some ten microseconds each."""


def _many_blocks(spec: BlockMaskSpec, shape: Shape) -> bool:
    rows, columns = (
        -(-(length + FURTHEST) // edge)
        for length, edge in zip((shape.q_len, shape.kv_len), spec.block_size, strict=True)
    )
    masks = (shape.batch if spec.batch else 1) * (shape.q_heads if spec.heads else 1)
    return rows * columns * masks > MOST_DRAWN


def _as_slices(spec: BlockMaskSpec, shape: Shape) -> BlockMaskSpec:
    """With slices of rows instead of an int where more than one block of queries is left."""
    steps = list(spec.steps)
    call = Extents(shape.batch, shape.q_heads, shape.q_len, shape.kv_len)
    for number in too_long(spec, call):
        step: Any = steps[number]
        steps[number] = replace(step, rows=replace(step.rows, how="slice"))
    return replace(spec, steps=tuple(steps))


def fitting_calls(spec: BlockMaskSpec, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Those of `calls` that the steps take."""
    if not spec.steps:
        return calls
    return tuple(
        call
        for call in calls
        if call.q_len
        and call.kv_len
        and not too_long(spec, Extents(call.batch, 1, call.q_len, call.kv_len))
    )
