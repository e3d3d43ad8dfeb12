"""Modes that a drawn program is run in, other ways to compile it, and extents of 0.

Each is rare, and added to a program only where it may have it: most programs come back as they
were.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.model.program import Compile, Marks, Modes, Program
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.swarm import CPU, Swarm

SIZES = (
    ("batch",), ("q_len",), ("kv_len",), ("q_len", "kv_len"), ("batch", "q_len", "kv_len"),
)  # fmt: skip


class InModes:
    """Adds what the features of a swarm allow. Other places than a CPU have none of it."""

    def __init__(self, swarm: Swarm) -> None:
        def rarely(feature: str, n: int) -> Any:
            there = swarm.has(feature) and swarm.place == CPU
            return one_in(swarm.rarity(n)) if there else st.just(False)

        self.reached = rarely("compile.via", 10)
        self.via: Any = weighted((1, "in_eager"), (1, "in_compiled"), (1, "module"), (1, "layers"))
        self.exported = rarely("compile.export", 8)
        self.packaged = rarely("compile.aoti", 40)
        self.marked = rarely("compile.marks", 12)
        self.mark: Any = weighted((3, "dynamic"), (2, "unbacked"), (1, "static"))
        self.sizes = st.sampled_from(SIZES)
        self.modes: list[tuple[Any, Any]] = [
            (rarely("modes.deterministic", 15), st.just({"deterministic": True})),
            (
                rarely("modes.default_dtype", 25),
                st.sampled_from(("float64", "bfloat16")).map(lambda d: {"default_dtype": d}),
            ),
            (
                rarely("modes.matmul_precision", 60),
                st.sampled_from(("medium", "high")).map(lambda d: {"matmul_precision": d}),
            ),
            (rarely("modes.compiled_autograd", 12), st.just({"compiled_autograd": True})),
        ]
        self.emptied = rarely("shape.nothing", 60)
        self.nothing: Any = st.sampled_from(("batch", "heads"))

    def draw(self, draw: Draw, p: Program) -> Program:
        """The program, or one with something of all that added."""
        p = self._compiled(draw, p)
        for wanted, mode in self.modes:
            if draw(wanted):
                p = _fitting(p, replace(p, modes=replace(p.modes, **draw(mode))))
        return self._emptied(draw, p)

    def _compiled(self, draw: Draw, p: Program) -> Program:
        compiled = p.compile
        if compiled is None:
            return p
        if compiled.backend in ("eager", "aot_eager") and draw(self.exported):
            return self._ahead(p, Compile(backend="eager", via="export"))
        if compiled.backend == "inductor" and draw(self.packaged):
            options = {k: v for k, v in compiled.options.items() if k != "cpp_wrapper"}
            alone = replace(p, training=None, modes=Modes())
            return self._ahead(alone, Compile(via="aoti", options=options), p)
        if draw(self.reached):
            p = _fitting(p, replace(p, compile=replace(compiled, via=draw(self.via))))
        if draw(self.marked):
            mark = draw(self.mark)
            marks = Marks(**dict.fromkeys(draw(self.sizes), mark))
            p = _fitting(p, replace(p, compile=replace(compiled, dynamic=None, marks=marks)))
        return p

    def _ahead(self, p: Program, compiled: Compile, otherwise: Program | None = None) -> Program:
        """`p` compiled like that, with one call if it cannot have all of them."""
        otherwise = otherwise or p
        p = replace(p, compile=compiled, grad_mode="default")
        return _fitting(_fitting(otherwise, replace(p, calls=())), p)

    def _emptied(self, draw: Draw, p: Program) -> Program:
        if not draw(self.emptied):
            return p
        shape = replace(p.shape, batch=0)
        if draw(self.nothing) == "heads":
            shape = replace(p.shape, q_heads=0, kv_heads=0)
        return _fitting(p, replace(p, shape=shape))


def _fitting(p: Program, changed: Program) -> Program:
    """The changed program, unless it is none."""
    return p if problems(changed) else changed
