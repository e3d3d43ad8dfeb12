"""Shapes: batch, heads, lengths at the boundaries, head dimensions; kept small enough to run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from attnfuzz.generators.model.program import Shape
from attnfuzz.generators.strategies.draws import Draw, weighted
from attnfuzz.generators.strategies.swarm import EVERYTHING, Swarm

ROUND = (16, 32, 64, 128, 256)
BOUNDARIES = (
    1, 2, 3, 7, 8, 9, 15, 17, 24, 31, 33, 48, 63, 65, 96, 100, 120, 127, 129, 130, 136, 144, 160,
    191, 192, 193, 200, 255, 257,
)  # fmt: skip
TINY = (1, 2, 3, 5, 8, 15)
LONG = (320, 384, 500, 511, 512, 513, 576, 640, 767, 768, 800, 1000, 1023, 1024, 1025, 1100)
ON_GPU = tuple(n for n in (*ROUND, *BOUNDARIES, *LONG) if n >= 127)
"""From a tile of queries on, flex_attention on a GPU does not decode."""
SHORT = (16, 1, 2, 5, 8, 17, 24, 32, 33, 48, 64)

BATCHES = ((8, 1), (7, 2), (2, 3), (1, 4), (1, 5))
HEADS = ((4, (1, 1)), (6, (2, 2)), (3, (4, 4)), (1, (3, 3)), (1, (5, 5)), (1, (8, 8)))
GROUPS = (
    (3, (2, 1)), (4, (4, 2)), (2, (4, 1)), (3, (6, 2)), (2, (3, 1)), (1, (9, 3)), (1, (12, 2)),
    (2, (8, 2)), (1, (10, 2)), (1, (6, 3)), (1, (5, 1)),
)  # fmt: skip
HEAD_DIMS = ((6, 16), (5, 64), (5, 32), (3, 8), (2, 128), (1, 4), (1, 2), (1, 1), (1, 256))
ODD_HEAD_DIMS = (
    (2, 24), (2, 48), (2, 96), (2, 80), (1, 3), (1, 5), (1, 7), (1, 12), (1, 17), (1, 20), (1, 33),
    (1, 40), (1, 72), (1, 100), (1, 112), (1, 160), (1, 192),
)  # fmt: skip
HEAD_DIMS_AS_TRAINED = ((8, 64), (10, 128), (2, 96), (3, 192), (6, 256))
"""What models have: 192 is that of queries in multi-head latent attention, 256 Gemma's."""


class Shapes:
    """Shapes with the features of a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        has = swarm.has
        self.place = swarm.place
        self.batch = weighted(*BATCHES)
        self.heads = weighted(*HEADS, *(GROUPS if has("shape.gqa") else ()))
        head_dims = (*HEAD_DIMS, *(ODD_HEAD_DIMS if has("shape.odd_head_dim") else ()))
        self.head_dim = weighted(
            *head_dims, *(HEAD_DIMS_AS_TRAINED if self.place.as_trained else ())
        )
        dims = [8, 16, 32, 64, 128, 1, 24, 40, 5] if has("shape.v_head_dim") else []
        self.v_head_dim = weighted((5 * len(dims) + 1, None), *((1, dim) for dim in dims))
        lengths = list(ROUND) * 8
        if has("shape.ragged"):
            lengths += list(BOUNDARIES) * 3 + list(TINY) * 3 + list(range(1, 301))
        if self.place.as_trained:
            lengths += list(ON_GPU) * (3 * len(lengths) // len(ON_GPU))
        if has("shape.empty"):
            lengths += [0] * max(1, len(lengths) // 40)
        if has("shape.long"):
            lengths += list(LONG) * max(1, len(lengths) // 250)
        self.length = st.sampled_from(lengths)
        unlike = ((3, "other"), (4, "decode"), (3, "chunk"), (1, "near"))
        cross = unlike if has("shape.cross") else ()
        self.relation = weighted((5, "same"), *cross)
        self.step = st.sampled_from((1, -1, 2, 16, -16, 100))
        self.short = st.sampled_from(SHORT)

    def draw(self, draw: Draw) -> Shape:
        """A shape that costs at most what the swarm's place allows."""
        q_heads, kv_heads = draw(self.heads)
        q_len, kv_len = self.lengths(draw)
        shape = Shape(
            batch=draw(self.batch),
            q_heads=q_heads,
            kv_heads=kv_heads,
            q_len=q_len,
            kv_len=kv_len,
            head_dim=draw(self.head_dim),
            v_head_dim=draw(self.v_head_dim),
        )
        return self.affordable(shape)

    def affordable(self, shape: Shape) -> Shape:
        """`shape`, made smaller until it costs at most what the swarm's may."""
        return affordable(shape, self.place.max_cost)

    def for_flex(self, shape: Shape) -> Shape:
        """`shape`, within what flex_attention takes at the place."""
        if not self.place.gpu:
            return shape
        v_head_dim = None if shape.v_head_dim is None else max(shape.v_head_dim, 16)
        return self.affordable(
            replace(
                shape,
                q_len=max(shape.q_len, 1),
                kv_len=max(shape.kv_len, 1),
                head_dim=max(shape.head_dim, 16),
                v_head_dim=v_head_dim,
            )
        )

    def forward_only(self, shape: Shape) -> Shape:
        """`shape`, whose kernel a GPU's compilers are not long at: what is trained has the large
        heads, and its forward is compiled too."""
        small = min(shape.head_dim, 32)
        return replace(shape, head_dim=small) if self.place.as_trained else shape

    def lengths(self, draw: Draw) -> tuple[int, int]:
        """Lq and Lkv: alike, unlike, one query, fewer queries than keys (a chunk of a prompt, whose
        beginning is in the cache), or nearly alike."""
        relation = draw(self.relation)
        kv_len = draw(self.length)
        if relation == "same":
            return kv_len, kv_len
        if relation == "decode":
            return 1, kv_len
        if relation == "near":
            return max(1, kv_len + draw(self.step)), kv_len
        q_len = draw(self.length)
        if relation == "chunk":
            fewer, kv_len = sorted((q_len, kv_len))
            return max(1, fewer if fewer < kv_len else kv_len // 2), kv_len
        return q_len, kv_len

    def short_lengths(self, draw: Draw, same: bool) -> tuple[int, int]:
        """Lengths for one of many calls, Lq == Lkv when `same`."""
        kv_len = draw(self.short)
        return (kv_len if same else draw(self.short)), kv_len


def cost(shape: Shape) -> int:
    """Multiply-adds of one attention call of that shape."""
    dims = shape.head_dim + (shape.v_head_dim or shape.head_dim)
    return shape.batch * shape.q_heads * shape.q_len * shape.kv_len * dims


def affordable(shape: Shape, most: int) -> Shape:
    """`shape`, made smaller until it costs at most `most`: batch, then heads (their ratio kept),
    then head_dim to 16, then that ratio; only then q_len."""
    while cost(shape) > most:
        if shape.batch > 1:
            shape = replace(shape, batch=shape.batch // 2)
        elif shape.kv_heads > 1:
            shape = replace(shape, q_heads=shape.q_heads // shape.kv_heads, kv_heads=1)
        elif shape.head_dim > 16 or (shape.v_head_dim or 0) > 16:
            shape = replace(
                shape, head_dim=min(shape.head_dim, 16), v_head_dim=_at_most_16(shape.v_head_dim)
            )
        elif shape.q_heads > 1:
            shape = replace(shape, q_heads=1)
        else:
            shape = replace(shape, q_len=-(-shape.q_len // 2))
    return shape


def _at_most_16(dim: int | None) -> int | None:
    return dim if dim is None else min(dim, 16)


@st.composite
def _shapes(draw: DrawFn, parts: Shapes) -> Shape:
    return parts.draw(draw)


def shapes(swarm: Swarm = EVERYTHING) -> SearchStrategy[Shape]:
    """Shapes of attention, boundaries of lengths overweighted, each within the cost that
    the swarm allows."""
    return _shapes(Shapes(swarm))
