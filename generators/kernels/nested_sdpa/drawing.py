"""Programs of SDPA of nested tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.nested_sdpa.plugin import OF_ONE_ENTRY, least_length
from attnfuzz.generators.kernels.nested_sdpa.spec import NestedSdpa
from attnfuzz.generators.model.program import Call, Compile, Input, Program, Shape
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import Parts

LONGEST = 300


class Drawing(kernel.Drawing):
    """Every way to make nested tensors; those that need lengths in Python only eager. A percent
    are causal within jagged sequences, which a CPU refuses."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.made = weighted(
            (4, "jagged"), (2, "jagged_list"), (2, "strided"), (2, "narrow"), (3, "ragged_batch")
        )
        self.traced = weighted((2, "jagged"), (1, "narrow"), (2, "ragged_batch"))
        self.sequences = weighted((4, 2), (3, 3), (1, 1), (1, 5), (1, 8))
        self.lengths = weighted((2, "growing"), (3, "random"))
        self.has_empty = one_in(25)  # a sequence without keys raises in torch's math back-end
        self.causal, self.refused = one_in(3), one_in(40)
        self.trains_narrow = one_in(8)  # torch's backward of what narrow gives raises
        self.scale = kernel.scales(self.swarm)
        self.bshd = st.booleans()

    def draw(self, draw: Draw, backend: str) -> Program:
        made = draw(self.made if backend == "none" else self.traced)
        alone = made in OF_ONE_ENTRY
        shape = self._shape(draw, alone)
        compiled = self.running.compile(draw, backend)
        if compiled is not None and made != "ragged_batch":
            compiled = _broken(compiled)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, False, static)
        training = self.running.training(draw, False) if draw(self.running.trains) else None
        if made == "narrow" and not draw(self.trains_narrow):
            training = None
        sequences, lengths = draw(self.sequences), draw(self.lengths)
        cut = NestedSdpa(made=made, sequences=sequences, lengths=lengths)
        if draw(self.has_empty) or (made == "ragged_batch" and lengths == "random"):
            cut = replace(cut, lengths="empty")
        least = 0 if made == "ragged_batch" else 1
        if alone:
            least = 0 if cut.lengths == "empty" else least_length(cut)
        shape = replace(shape, q_len=max(shape.q_len, least), kv_len=max(shape.kv_len, least))
        is_refused = self.has("refused") and draw(self.refused)
        dtype = draw(self.inputs.dtypes_and_double)
        layout = bshd_or_each(draw, self.bshd)
        values: Any = self.inputs.draw_values(draw, "float16" in dtype)
        q, k, v = (
            Input(dtype=kind, layout=lie, values=value)
            for kind, lie, value in zip(dtype, layout, values, strict=True)
        )
        return Program(
            kernel=replace(
                cut,
                is_causal=draw(self.causal) if made == "ragged_batch" else is_refused,
                scale=draw(self.scale),
            ),
            shape=shape,
            q=q,
            k=k,
            v=v,
            compile=compiled,
            calls=tuple(_fitting(call, alone, least) for call in calls),
            training=training,
            grad_mode="default" if training is not None else draw(self.running.grad_mode),
            autocast=draw(self.running.autocast),
            dirty_memory=draw(self.running.dirty),
        )

    def _shape(self, draw: Draw, alone: bool) -> Shape:
        shape = self.shapes.draw(draw)
        return replace(
            shape,
            batch=1 if alone else shape.batch,
            kv_heads=shape.q_heads,
            q_len=min(shape.q_len, LONGEST),
            kv_len=min(shape.kv_len, LONGEST),
        )


def _broken(compiled: Compile) -> Compile:
    """On a CPU torch breaks the graph in its own function."""
    return replace(compiled, fullgraph=False)


def _fitting(call: Call, alone: bool, least: int) -> Call:
    q_len, kv_len = (max(least, min(n, LONGEST)) for n in (call.q_len, call.kv_len))
    return replace(call, batch=1 if alone else call.batch, q_len=q_len, kv_len=kv_len)
