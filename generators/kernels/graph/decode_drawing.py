"""Programs of graphs that decode: a cache that grows from call to call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.kernels.graph import decoding, fit, types
from attnfuzz.generators.kernels.graph.attending import Attending, Ways
from attnfuzz.generators.kernels.graph.building import Builder, Forms
from attnfuzz.generators.kernels.graph.decode import MOST_CALLS, Decode
from attnfuzz.generators.kernels.graph.spec import Graph, MaskForm
from attnfuzz.generators.kernels.graph.steps.arithmetic import Norm
from attnfuzz.generators.kernels.graph.steps.rotary import Rotary, Rotation
from attnfuzz.generators.kernels.graph.steps.state import (
    Append,
    AppendToList,
    AttendWritten,
    PositionMask,
    Store,
    StoreInPages,
)
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import Extent
from attnfuzz.generators.model.program import Compile, Program, Shape
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.shapes import affordable

LONGEST, SHORT = 96, 24
"""Tokens of a sequence, all parts together; a ring is to be gone round."""
CACHES = {"k": ("cache_k", "keys", "k2"), "v": ("cache_v", "values", "v2")}
"""The cache, what there is of all parts, and that with dimensions moved."""
FEW = 3
"""Calls that may be compiled anew each."""


class DecodeDrawing:
    """The most frequent ones are written as models write them: a cache for the whole sequence, one
    token in each call after the prefill."""

    def __init__(
        self,
        drawing: kernel.Drawing,
        forms: Forms,
        returned: SearchStrategy[Any],
        laid_out: Callable[[Draw, Program, Any], dict[str, Any]],
    ) -> None:
        """`laid_out` gives q, k and v of a program in a dtype, `returned` how a result is laid."""
        self.drawing, self.forms, self.returned = drawing, forms, returned
        self.laid_out = laid_out
        self.ways = Ways(drawing.swarm)
        self.ways.rare = st.just(False)  # a softcap after the mask would show what it hides
        self.calls = weighted((1, 0), (4, 1), (5, 2), (4, 3), (2, 4), (1, 6))
        self.tokens = weighted((6, 1), (2, 2), (1, 3))
        self.prefilled = weighted((1, False), (5, True))
        self.slots = weighted(
            (6, "in_order"), (2, "ring"), (3, "pages"), (3, "appended"), (1, "listed")
        )
        self.writes = weighted((3, "in_place"), (1, "functional"))
        self.position = weighted((4, "int"), (3, "tensor"), (1, "one_element"), (3, "arange"))
        self.cache = weighted((3, "bhld"), (2, "blhd"))
        self.reads = weighted((1, "written"), (1, "all"))
        self.unwritten = weighted((2, "zeros"), (3, "normal"), (3, "nan"))
        self.spare = weighted((3, 0), (2, 1), (2, 4), (1, 16))
        self.has_window = one_in(4)
        self.window = st.integers(1, 24)
        self.page = weighted((2, 4), (1, 2), (1, 8))
        self.given = weighted((5, "bhld"), (4, "blhd"), (1, "merged"), (1, "flat"))
        self.store = weighted(
            (3, "slice"), (1, "narrow"), (4, "index_copy"), (4, "index_put"), (2, "scatter")
        )
        self.store_by_index = weighted((3, "index_copy"), (3, "index_put"), (1, "scatter"))
        self.copied = weighted((3, "slice"), (2, "index_copy"), (1, "scatter"))
        self.copied_by_index = weighted((2, "index_copy"), (1, "scatter"))
        self.in_pages = weighted((2, "index_put"), (1, "index_copy"))
        self.form = weighted((3, "bool"), (2, "additive"), (1, "zero_one"))
        self.fill = weighted((2, "-inf"), (1, "finfo_min"))
        self.rank = weighted((2, 2), (1, 4))
        self.norm = one_in(6)
        self.flag = st.booleans()

    def draw(self, draw: Draw, compiled: Compile | None) -> Program:
        """A program whose function is called for parts of a sequence."""
        running, inputs = self.drawing.running, self.drawing.inputs
        if compiled is not None and compiled.mode in decoding.CUDA_GRAPHS:
            compiled = replace(compiled, mode=None)
        slots = draw(self.slots)
        anew = compiled is not None and (compiled.dynamic is False or slots == "listed")
        shape = self._shape(draw, SHORT if slots == "ring" else LONGEST)
        decode = self._decode(draw, shape.q_len, slots, anew)
        p = Program(shape=shape, compile=compiled, grad_mode=draw(running.grad_mode))
        p = replace(p, dirty_memory=draw(running.dirty))
        p = replace(p, **self.laid_out(draw, p, draw(inputs.dtypes_and_double)[0]))
        return fit.fitted(p, self._graph(draw, p, decode))

    def _shape(self, draw: Draw, longest: int) -> Shape:
        shape = self.drawing.shapes.draw(draw)
        length = max(2, min(shape.kv_len, longest))
        shape = replace(shape, q_len=length, kv_len=length)
        shape = affordable(shape, self.drawing.swarm.place.max_cost // 3)
        return replace(shape, q_len=shape.kv_len)

    def _decode(self, draw: Draw, length: int, slots: Any, anew: bool) -> Decode:
        """`anew`: each integer, or longer list, is compiled for by itself."""
        tokens = min(draw(self.tokens), length)
        calls = min(draw(self.calls), length // tokens)
        least = -(-length // MOST_CALLS)
        if (slots == "ring" or not draw(self.prefilled)) and least <= 3:  # in small parts only
            tokens = max(tokens, least)
            calls = length // tokens
        if anew and slots in ("appended", "listed"):
            calls = min(calls, FEW)
        window = draw(self.window) if slots == "ring" or draw(self.has_window) else None
        decode = Decode(calls=calls, tokens=tokens, slots=slots, cache=draw(self.cache))
        decode = replace(decode, window=window)
        if not decode.allocated:
            return decode
        position: Any = draw(self.position)
        if anew and calls > FEW:
            position = "tensor"
        reads: Any = draw(self.reads) if position == "int" and slots != "ring" else "all"
        unwritten: Any = draw(self.unwritten)
        writes: Any = draw(self.writes) if reads == "all" and slots != "pages" else "in_place"
        return replace(
            decode,
            writes=writes,
            position=position,
            reads=reads,
            unwritten="normal" if unwritten == "nan" and reads == "all" else unwritten,
            spare=draw(self.spare),
            page=draw(self.page) if slots == "pages" else 4,
        )

    def _graph(self, draw: Draw, p: Program, decode: Decode) -> Graph:
        given: Any = draw(self.given)
        kind: Any = draw(self.form)
        fill: Any = draw(self.fill) if kind == "additive" and p.q.dtype != "float64" else "-inf"
        graph = Graph(given=given, decode=decode, steps=())
        scope = types.arguments(p, graph, decoding.names_of_sizes(p, decode))
        b = Builder(draw, self.forms, scope, p.q.dtype)
        attending = Attending(b, self.ways, MaskForm(form=kind))
        rotation = b.rotation()
        b.arrange("q", given, "Hq", "D")
        if rotation is not None:
            b.add(Rotary(of="q", to="q", form=rotation))
        keys = self._kept(b, decode, given, "k", "D", rotation)
        values = self._kept(b, decode, given, "v", "Dv")
        if draw(self.norm) and p.shape.head_dim > 1:
            b.add(Norm(of="q", to="q"))
        fits = decode.reads == "written" and decode.window is None and decode.tokens == 1
        if fits and draw(self.flag):
            b.add(AttendWritten(q="q", k=keys, v=values, to="out", scale=draw(self.ways.factor)))
        else:
            b.add(PositionMask(like="q", to="mask", form=kind, fill=fill, rank=draw(self.rank)))
            attending.attend("q", keys, values, "out", "mask")
        b.hand_back("out", draw(self.returned))
        returns = ("out", *decoding.results(b.steps, decode))
        return replace(b.graph(given, MaskForm(), returns), decode=decode)

    def _kept(
        self,
        b: Builder,
        decode: Decode,
        given: str,
        name: str,
        dim: Extent,
        rotation: Rotation | None = None,
    ) -> str:
        """Keeps keys or values of the part, and gives the name of those of all parts, `[B, Hkv, L,
        D]`."""
        if decode.cache == "bhld":
            b.arrange(name, given, "Hkv", dim)
        elif given == "merged":
            b.unflatten(name, 2, "Hkv", dim)
        elif given != "blhd":
            b.arrange(name, given, "Hkv", dim)
            b.exchange(name, 1, 2)
        if rotation is not None:
            b.add(Rotary(of=name, to=name, dim=decode.length_dim, form=rotation))
        b.decorate(name)
        cache, kept, moved = CACHES[name]
        b.add(self._write(b.draw, decode, name, cache, kept))
        if decode.gives_caches:
            b.fixed.add(kept)
        else:
            moved = kept
        if decode.cache == "bhld":
            return kept
        b.exchange(kept, 1, 2, moved)
        return moved

    def _write(self, draw: Draw, decode: Decode, of: str, cache: Any, to: str) -> Step:
        match decode.slots:
            case "appended":
                return Append(of=of, cache=cache, to=to)
            case "listed":
                return AppendToList(of=of, cache=cache, to=to)
            case "pages":
                form: Any = draw(self.in_pages) if decode.cache == "blhd" else "index_put"
                return StoreInPages(of=of, cache=cache, to=to, form=form)
        by_slice = decode.slots == "in_order" and decode.position == "int"
        if decode.writes == "functional":
            form = draw(self.copied if by_slice else self.copied_by_index)
        else:
            form = draw(self.store if by_slice else self.store_by_index)
        return Store(of=of, cache=cache, to=to, form=form)
