"""Programs of TorchTitan's attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.torchtitan.plugin import BLOCK
from attnfuzz.generators.kernels.torchtitan.spec import Torchtitan
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.program import BSHD, Call, Input, Mesh, Program, Shape, Surround
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies import kernel
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.placing import Placed, placed

LONGEST = 400
WINDOWS = (4, 1, 2, 5, 8, 16, 31, 64, 128, 200)
PLAIN = Placed("none", (BSHD, BSHD, BSHD), alone=True)


class Drawing(kernel.Drawing):
    """Half of the programs have q, k and v as a block's projections give them."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        trained = (4, "flex") if parts.swarm.place.gpu else (2, "flex")
        self.module = weighted((3, "sdpa"), trained)
        self.all = one_in(6)
        self.pattern = weighted((4, "causal"), (3, "window"), (2, "fixed_block"), (1, "all"))
        self.window = st.sampled_from(WINDOWS)
        self.documents = weighted((2, "none"), (3, "ids"), (3, "bounds"))
        self.sequences = weighted((2, 2), (1, 1), (2, 3), (1, 5), (1, 8))
        self.block_size = weighted((8, 128), (1, 16), (1, 32), (1, 64), (1, 256))
        self.checkpoint = weighted((3, "none"), (2, "full"), (2, "selective"))
        self.has_mask = one_in(5)
        self.as_projected = one_in(2)
        self.scale = kernel.scales_above_0(parts.swarm)
        here = not parts.swarm.place.gpu and parts.swarm.has("mesh")
        # Of SDPA a CPU has little to show: see `_in_parallel`.
        shared = {"sdpa": one_in(4), "flex": weighted((2, True), (1, False))}
        self.parallel = shared if here else dict.fromkeys(shared, st.just(False))
        self.latent = weighted((7, True), (1, False))
        self.ranks = weighted((4, 2), (3, 4), (1, 3), (1, 8))
        self.flex_ranks = weighted((1, 2), (2, 4))
        self.headtail = st.booleans()

    def draw(self, draw: Draw, backend: str) -> Program:
        module: Any = draw(self.module)
        shape = self.shapes.draw(draw)
        length = max(1, min(shape.kv_len, LONGEST))
        shape = self.shapes.for_flex(replace(shape, q_len=length, kv_len=length))
        shape = replace(shape, kv_len=shape.q_len)
        trains = (module == "sdpa" or self.swarm.place.gpu) and draw(self.running.trains)
        training = self.running.training(draw, False) if trains else None
        mask = self._mask(draw, shape) if module == "flex" else None
        spec = self._spec(draw, module)
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, True, static)
        flex = module == "flex" and backend == "inductor"
        dtype: Any = draw(self.inputs.dtypes if flex else self.inputs.dtypes_and_double)[0]
        dtype = "float32" if module == "flex" and dtype == "float64" else dtype
        lie = PLAIN
        if not draw(self.as_projected):
            lie = placed(draw, self.inputs, shape, (dtype, dtype, dtype))
        surround = self.running.draw_surround(draw, shape, lie.alone, moved=False)
        values = self._values(draw, dtype, lie.packed, surround.projections)
        q, k, v = (
            Input(dtype=dtype, layout=layout, values=value)
            for layout, value in zip(lie.layouts, values, strict=True)
        )
        program = Program(
            kernel=spec,
            shape=shape,
            q=q,
            k=k,
            v=v,
            packed=lie.packed,
            mask=mask,
            surround=surround,
            compile=compiled,
            calls=tuple(_fitting(call) for call in calls),
            training=training,
            grad_mode="default" if trains else draw(self.running.grad_mode),
            dirty_memory=draw(self.running.dirty),
        )
        return self._in_parallel(draw, program) if draw(self.parallel[module]) else program

    def _in_parallel(self, draw: Draw, p: Program) -> Program:
        """The program over ranks, in one call, with a length that they can share.

        Most of SDPA have heads as DeepSeek-V3's latent attention has them, of 192 and values of
        128. Where both are alike SDPA is the CPU's fused kernel, for which DTensor has no rule: it
        refuses the causal one, and tries to decompose the other, for 12 CPU seconds in each rank.
        """
        spec = p.kernel
        assert isinstance(spec, Torchtitan)
        flex = spec.module == "flex"
        latent = not flex and draw(self.latent)
        # TorchTitan compiles a BlockMask and flex_attention with Inductor, in each rank; what is
        # compiled with it around them takes 30 CPU seconds more.
        ranks = draw(self.flex_ranks if flex else self.ranks)
        if flex and p.compile is not None and p.compile.backend == "inductor":
            ranks = 2
        parts = ranks * (BLOCK if flex else 2)
        length = -(-p.shape.q_len // parts) * parts
        form: Any = "plain" if flex or draw(self.headtail) else "headtail"
        shape = replace(p.shape, q_len=length, kv_len=length)
        if flex:
            shape = replace(shape, batch=1, q_heads=shape.q_heads // shape.kv_heads, kv_heads=1)
            shape = replace(shape, head_dim=min(shape.head_dim, 32))
        elif latent:
            shape = replace(shape, v_head_dim=max(1, shape.head_dim * 2 // 3))
        else:
            spec = replace(spec, pattern="causal")
        parallel = replace(
            p,
            kernel=replace(spec, context_parallel=form, block_size=128, checkpoint="none"),
            shape=shape,
            packed="none",
            mask=None,
            surround=Surround(),
            calls=(),
            mesh=Mesh(world_size=ranks, ranks="processes"),
        )
        return p if problems(parallel) else parallel

    def _spec(self, draw: Draw, module: Any) -> Torchtitan:
        checkpoint: Any = draw(self.checkpoint)
        scale = draw(self.scale)
        if module == "sdpa":
            pattern: Any = "all" if draw(self.all) else "causal"
            return Torchtitan(pattern=pattern, checkpoint=checkpoint, scale=scale)
        pattern = draw(self.pattern)
        documents: Any = draw(self.documents)
        if documents == "bounds" and pattern not in ("causal", "window"):
            documents = "ids"
        sequences = draw(self.sequences) if documents != "none" else Torchtitan().sequences
        return Torchtitan(
            module="flex",
            pattern=pattern,
            window=draw(self.window) if pattern in ("window", "fixed_block") else 4,
            documents=documents,
            sequences=sequences,
            block_size=draw(self.block_size),
            checkpoint=checkpoint,
            scale=scale,
        )

    def _values(self, draw: Draw, dtype: str, packed: str, projected: bool) -> tuple[Any, ...]:
        q, k, v = self.inputs.draw_values(draw, dtype == "float16")
        if packed == "qkv" or projected:
            return q, q, q
        return (q, v, v) if packed == "kv" else (q, k, v)

    def _mask(self, draw: Draw, shape: Shape) -> Mask | None:
        """A mask that is alike for all heads, or none."""
        if not draw(self.has_mask):
            return None
        mask = self.masks.draw(draw, shape)
        return None if "h" in mask_axes(mask) else mask


def _fitting(call: Call) -> Call:
    length = max(1, min(call.kv_len, LONGEST))
    return replace(call, q_len=length, kv_len=length)
