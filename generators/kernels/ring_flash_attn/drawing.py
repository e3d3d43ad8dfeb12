"""Programs that call the ring_flash_attn package."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from attnfuzz.generators.kernels.ring_flash_attn.plugin import CAUSAL, parts_of_a_rank
from attnfuzz.generators.kernels.ring_flash_attn.spec import RingFlashAttn
from attnfuzz.generators.model.program import Call, Input, Mesh, Program, Shape
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.inputs import bshd_or_each
from attnfuzz.generators.strategies.kernel import Parts

LONGEST = 128
HEADS = 4


class Drawing(kernel.Drawing):
    """What runs on a CPU, in float16, on a few ranks: its kernels are interpreted. Half of the
    programs train, but not llama3's, whose backward over flash_attn's Triton back-end writes
    beyond its buffers (docs/FINDINGS.md)."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.ring = weighted((4, "contiguous"), (3, "zigzag"), (2, "striped"), (4, "llama3"))
        self.ranks = weighted((5, 2), (1, 3), (3, 4))
        self.causal = one_in(2)
        self.trains = one_in(2)
        self.bshd = st.booleans()
        self.again = one_in(4)
        self.sequences = weighted((1, 1), (3, 2), (2, 3), (1, 5))
        self.all_heads = one_in(3)
        self.scale = kernel.scales_above_0(parts.swarm)

    def draw(self, draw: Draw, backend: str) -> Program:
        ranks, ring = draw(self.ranks), draw(self.ring)
        packs = ring == "llama3"
        sequences = draw(self.sequences) if packs else 1
        parts = ranks * parts_of_a_rank(ring)
        shape = self._shape(draw, packs, parts, sequences * (sequences + 1) // 2)
        lie = bshd_or_each(draw, self.bshd)
        q, k, v = (Input(dtype="float16", layout=layout) for layout in lie)
        calls: tuple[Call, ...] = ()
        if not packs and draw(self.again):
            length = self._shape(draw, packs, parts, 1).q_len
            calls = (Call(batch=shape.batch, q_len=length, kv_len=length),)
        training = None
        if not packs and draw(self.trains):
            training = replace(self.running.training(draw, False), double=False)
        return Program(
            kernel=RingFlashAttn(
                ring=ring,
                causal=ring in CAUSAL or draw(self.causal),
                scale=draw(self.scale),
                sequences=sequences,
                heads_k_stride=shape.kv_heads if packs and draw(self.all_heads) else 1,
            ),
            shape=shape,
            q=q,
            k=k,
            v=v,
            mesh=Mesh(world_size=ranks, ranks="processes"),
            compile=self.running.compile(draw, backend),
            calls=calls,
            training=training,
            dirty_memory=draw(self.running.dirty),
        )

    def _shape(self, draw: Draw, packs: bool, parts: int, least: int) -> Shape:
        shape = self.shapes.draw(draw)
        kv_heads = min(shape.kv_heads, HEADS)
        groups = min(shape.q_heads // shape.kv_heads, HEADS // kv_heads)
        length = -(-max(least, min(shape.kv_len, LONGEST)) // parts) * parts
        batch = 1 if packs else max(1, min(shape.batch, 2))
        return replace(
            shape, batch=batch, q_heads=kv_heads * groups, kv_heads=kv_heads, q_len=length,
            kv_len=length, head_dim=min(shape.head_dim, 64), v_head_dim=None,
        )  # fmt: skip
