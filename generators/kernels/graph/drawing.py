"""Programs of graphs: what models do around attention, and several attentions at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.graph import fit, idioms, types
from attnfuzz.generators.kernels.graph.attending import Attending, Ways
from attnfuzz.generators.kernels.graph.building import Builder, Forms
from attnfuzz.generators.kernels.graph.decode_drawing import DecodeDrawing
from attnfuzz.generators.kernels.graph.families import Families, Setting
from attnfuzz.generators.kernels.graph.idioms import IDIOMS, Idiom
from attnfuzz.generators.kernels.graph.spec import Graph, MaskForm
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal, KeyPadding, Mask
from attnfuzz.generators.model.program import BSHD, Call, Input, Layout, Program, Shape, Surround
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.layers import Layers
from attnfuzz.generators.strategies.placing import placed
from attnfuzz.generators.strategies.running import is_lite
from attnfuzz.generators.strategies.shapes import affordable
from attnfuzz.generators.strategies.swarm import PROFILES

LONGEST = 256
WIDEST = 256
"""Of Hq * D: weights are its square."""
ATTENTIONS = 3
"""As many may be in one graph: each costs at most a part of what a program may."""

FAMILIES: tuple[tuple[str, str | None, tuple[int, int, int]], ...] = (
    ("single", None, (8, 8, 4)), ("idiom", None, (2, 24, 2)),
    ("cross", "graph.several", (3, 3, 3)), ("split", "graph.several", (3, 5, 5)),
    ("sink", "graph.several", (2, 3, 6)), ("shared", "graph.several", (3, 4, 4)),
    ("layers", "graph.several", (2, 3, 3)), ("projected", "graph.projected", (8, 8, 14)),
    ("decode", "graph.state", (8, 6, 2)),
)  # fmt: skip
"""Families, the feature of a swarm that each needs, and its weights: where Inductor is not at work,
where it rewrites the graph alone, and where it generates code for it. Its fusions are what idioms
are for, and show without code; code costs most, and what there is to lower is in the others."""


class Drawing(kernel.Drawing):
    """Half of the programs are one attention, written as models write it; the others have
    projections, norms and residuals around it, or several attentions."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.forms, self.ways = Forms(self.swarm), Ways(self.swarm)
        alone = PROFILES[self.swarm.profile].family
        families = [row for row in FAMILIES if row[1] is None or self.has(row[1])]
        if alone is not None:
            families = [row for row in FAMILIES if row[0] == alone]
        self.families = {
            way: weighted(*((weights[n], name) for name, _, weights in families))
            for n, way in enumerate(("eager", "rewritten", "generated"))
        }
        self.given = weighted((3, "bhld"), (3, "blhd"), (1, "merged"), (1, "flat"))
        self.returned = weighted((5, "bhld"), (3, "blhd"), (3, "merged"), (1, "flat"))
        self.has_mask = weighted((4, "none"), (3, "causal"), (3, "tree"))
        self.mask_form = weighted((4, "bool"), (4, "additive"), (1, "zero_one"), (2, "biased"))
        self.fill = weighted((2, "-inf"), (1, "finfo_min"))
        self.mask_dtype = weighted((4, "q"), (1, "float32"))
        self.idiom_dtype = weighted((1, "q"), (1, "float32"))
        self.mask_rank = weighted((2, 4), (1, 2))
        self.also = one_in(5) if self.has("graph.returns") else st.just(False)
        self.bshd = st.booleans()
        self.mostly = weighted((4, True), (1, False))
        self.decoding = DecodeDrawing(self, self.forms, self.returned, self.laid_out)
        self.checkpoint = self.running.checkpoints(150)
        self.layers = Layers(self.swarm)
        self.idiom = weighted(*((idiom.patterns, idiom) for idiom in IDIOMS))
        # Patterns with a cast are registered for float16; bfloat16 does not match them.
        self.half = one_in(2)
        self.select = weighted((2, "tensor"), (1, "-inf"))

    def draw(self, draw: Draw, backend: str) -> Program:
        compiled = self.running.compile(draw, backend)
        way = "eager"
        if backend == "inductor":
            way = "rewritten" if is_lite(compiled) else "generated"
        family = draw(self.families[way])
        if family == "decode":
            return self.decoding.draw(draw, compiled)
        shape = self._size(draw, family)
        idiom = draw(self.idiom) if family == "idiom" else None
        if idiom is not None:  # what has one batch, head or position is traced to other operators
            least = 2 if draw(self.mostly) else 1
            names = ("batch", "q_heads", "q_len", "kv_len")
            shape = replace(shape, **{name: max(getattr(shape, name), least) for name in names})
            shape = replace(shape, kv_heads=shape.q_heads)
        if idiom is not None and idiom.fused:
            shape = replace(shape, v_head_dim=min(2 * shape.head_dim, 256))
        mask = self._mask(draw, shape, family, idiom)
        training = None
        # A third of Inductor's patterns are for inference alone; gradients cost it three times as
        # much code.
        seldom = way == "generated" or idiom is not None
        dead = family == "split" and mask is not None  # gradients are NaN where no key is left
        if draw(self.running.trains) and not dead and not (seldom and draw(self.half)):
            training = self.running.training(draw, False)
        dtype: Any = draw(self.inputs.dtypes_and_double)[0]
        if idiom is not None and (idiom.float32 or idiom.masking == "add") and draw(self.half):
            dtype = "float16"
        p = Program(shape=shape, mask=mask, training=training)
        p = replace(p, **self.laid_out(draw, p, dtype, idiom is not None and idiom.permuted))
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, shape.q_len == shape.kv_len, static)
        if way == "generated":  # g++ takes up to 40 s for each call
            calls = () if training is not None else calls[:1]
        p = replace(
            p,
            compile=compiled,
            calls=tuple(_fitting(call) for call in calls),
            surround=Surround(checkpoint=draw(self.checkpoint)),
            grad_mode="default" if training is not None else draw(self.running.grad_mode),
            dirty_memory=draw(self.running.dirty),
        )
        p = fit.fitted(p, self._graph(draw, p, family, idiom))
        # A step may need an extent as a number that further calls have another of.
        p = replace(p, calls=()) if p.calls and problems(p) else p
        return self.layers.draw(draw, p)

    def _graph(self, draw: Draw, p: Program, family: str, idiom: Idiom | None) -> Graph:
        given: Any = "merged" if family == "projected" else draw(self.given)
        form = self._mask_form(draw, p, idiom)
        if idiom is not None:
            given = "blhd" if idiom.permuted else "bhld"
        graph = Graph(given=given, mask=form, steps=())  # only its arguments are looked at
        _, extents = next(types.scopes_of_calls(p, graph))
        scope = types.arguments(p, graph, extents)
        builder = Builder(draw, self.forms, scope, p.q.dtype)
        if idiom is not None:
            names = idioms.write(builder, idiom, draw(self.select))
            if draw(self.half):  # what Inductor writes for an idiom may lay [B, H, L, D] out anew
                builder.hand_back("out", "merged")
            return builder.graph(given, form, names)
        attending = Attending(builder, self.ways, form)
        setting = Setting(given, draw(self.returned), "mask" if p.mask is not None else None)
        returns = Families(builder, attending, setting, draw(self.also)).build(family)
        return builder.graph(given, form, returns)

    def _mask_form(self, draw: Draw, p: Program, idiom: Idiom | None) -> MaskForm:
        if p.mask is None:
            return MaskForm()
        form: Any = draw(self.mask_form)
        if idiom is not None:
            added = form if form in ("additive", "biased") else "additive"
            form = {"add": added, "where_add": "additive", "padding": "zero_one"}.get(
                idiom.masking, "bool"
            )
            if idiom.masking == "padding":
                return MaskForm(form=form, padding=True)
        flat = not mask_axes(p.mask) & {"b", "h"}
        rank = draw(self.mask_rank)
        # A row of the least numbers would be rounded to infinities on the way back to q's dtype.
        least = form in ("additive", "biased") and not (idiom is not None and idiom.back)
        return MaskForm(
            form=form,
            fill=draw(self.fill) if least else "-inf",
            dtype=draw(self.idiom_dtype if idiom else self.mask_dtype) if form != "bool" else "q",
            rank=rank if flat else 4,
        )

    def laid_out(
        self, draw: Draw, p: Program, dtype: Any, permuted: bool = False
    ) -> dict[str, Any]:
        """q, k and v of the program, by name; `permuted`: mostly as models store them."""
        lie = placed(draw, self.inputs, p.shape, (dtype,) * 3)
        layouts = [BSHD] * 3 if draw(self.mostly if permuted else self.bshd) else lie.layouts
        layouts = [Layout() if layout.expand else layout for layout in layouts]
        values: Any = self.inputs.draw_values(draw, dtype == "float16")
        return {
            name: Input(dtype=dtype, layout=layout, values=value)
            for name, layout, value in zip(("q", "k", "v"), layouts, values, strict=True)
        }

    def _size(self, draw: Draw, family: str) -> Shape:
        shape = self.shapes.draw(draw)
        q_len, kv_len = (max(1, min(n, LONGEST)) for n in (shape.q_len, shape.kv_len))
        shape = replace(shape, q_len=q_len, kv_len=kv_len)
        if family == "split":
            shape = replace(shape, kv_len=max(kv_len, 4))
        if family in ("projected", "cross", "layers"):
            shape = replace(shape, v_head_dim=None)
        if family == "projected":
            dim = min(shape.head_dim, WIDEST)
            heads = max(1, min(shape.q_heads, WIDEST // dim))
            shape = replace(
                shape, head_dim=dim, q_heads=heads, kv_heads=heads, q_len=kv_len, kv_len=kv_len
            )
        most = self.swarm.place.max_cost // ATTENTIONS
        shape = affordable(shape, most)
        if family == "projected":
            shape = replace(shape, kv_heads=shape.q_heads, kv_len=shape.q_len)
        return shape

    def _mask(self, draw: Draw, shape: Shape, family: str, idiom: Idiom | None) -> Mask | None:
        which = draw(self.has_mask)
        if idiom is not None and idiom.masking == "none":
            return None
        if idiom is not None and idiom.masking == "padding":
            return KeyPadding()
        if idiom is not None:
            which = "causal" if which == "none" else which
        if which == "none" or family == "sink":
            return None
        return Causal() if which == "causal" else self.masks.draw(draw, shape)


def _fitting(call: Call) -> Call:
    q_len, kv_len = (max(4, min(n, LONGEST)) for n in (call.q_len, call.kv_len))
    return replace(call, q_len=q_len, kv_len=kv_len)
