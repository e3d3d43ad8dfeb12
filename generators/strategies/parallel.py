"""Programs whose ranks share one attention by a method: any degree, on one or two dimensions.

They are plain programs but for that: what combines with much else is drawn elsewhere. A method
limits what is around it, so each program is drawn for its method and its degree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Kernel, NpuFusionAttention, Sdpa
from attnfuzz.generators.methods.registry import plugin_for
from attnfuzz.generators.methods.sharding import chunks
from attnfuzz.generators.methods.specs import (
    AllGather,
    ContextParallel,
    FlexContextParallel,
    Heads,
    Method,
    Ring,
    Ulysses,
)
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal, Mask
from attnfuzz.generators.model.program import (
    BSHD,
    Call,
    Compile,
    FloatDtype,
    Input,
    Layout,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.scores import Alibi, Score
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.masks import Masks
from attnfuzz.generators.strategies.shapes import cost
from attnfuzz.generators.strategies.swarm import Swarm

COMPILED_DEGREE = 4
"""Of programs that are compiled: each rank compiles."""

FEWEST = 2
"""Ranks of a program that Inductor compiles more than once: six took 290 CPU seconds."""

LONGEST = 4096

RAGGED = (AllGather(by="collective"), Ring())
"""Methods whose ranks may have lengths of their own."""

MOST_RAGGED = 8
"""Ranks of such a program."""

SCALES = (1.0, 0.5, 0.125, 2.0, 0.1)
"""Above 0: what fused SDPA makes of others is met without ranks."""

FLEX_BLOCK = 128

METHODS = (
    (3, AllGather()), (2, AllGather(by="collective")), (3, Ulysses()),
    (3, Ulysses(by="collective")), (1, Heads()), (2, Ring()), (2, Ring(order="zigzag")),
    (1, Ring(order="striped")), (3, ContextParallel()), (2, ContextParallel(rotate="alltoall")),
    (3, ContextParallel(balance="head_tail")),
    (2, ContextParallel(balance="head_tail", rotate="alltoall")),
    (1, ContextParallel(operator="efficient")),
    (1, ContextParallel(operator="efficient", balance="head_tail")),
    (1, ContextParallel(by="manager")), (1, ContextParallel(by="manager", balance="head_tail")),
)  # fmt: skip
FLEX = (
    (2, FlexContextParallel()), (2, FlexContextParallel(balance="head_tail")),
    (1, FlexContextParallel(balance="per_document")), (1, FlexContextParallel(balance="ptrr")),
)  # fmt: skip
FLEX_IN = 50
"""One program in so many: torch compiles a BlockMask for each rank, which is seconds."""

MOST_FLEX = 16
"""Ranks of such a program: each has a block of positions or two."""

COSTS_LESS = 8
"""Times as many multiply-adds may a program have whose ranks share a card."""

FLEX_ON_CARD_IN = 4
"""One program in so many, where one rank stands for all and flex_attention trains."""


class Parallel:
    """Programs with a `Mesh.method`, for the swarm's place."""

    def __init__(self, swarm: Swarm) -> None:
        self.place = swarm.place
        self.most_compiled = LONGEST if self.place.one_rank else COMPILED_DEGREE
        self.of_npu = swarm.profile == "npu-parallel"
        known = [one for one in METHODS if self._takes(one[1])]
        self.method, self.flex = weighted(*known), weighted(*FLEX)
        self.degree = weighted(
            (1, 1), (6, 2), (4, 3), (5, 4), (2, 5), (1, 6), (3, 8), (1, 16), (1, 32), (1, 64)
        )
        self.few = weighted((4, 2), (3, 3), (3, 4))
        self.apart = one_in(4)
        self.placed_apart = one_in(2)
        self.many_apart = one_in(8)
        self.second = weighted((8, (1, 1)), (1, (2, 1)), (1, (1, 2)))
        self.batch = weighted((3, 1), (2, 2))
        self.heads = weighted((2, (1, 1)), (4, (2, 2)), (2, (4, 4)), (2, (4, 2)), (1, (3, 1)))
        often = FLEX_ON_CARD_IN if self.place.gpu else FLEX_IN
        self.is_flex = st.just(False) if self.of_npu else one_in(often)
        self.input_layout: Any = weighted((3, "BNSD"), (2, "BSND"), (1, "BSH"), (1, "SBH"))
        self.per_rank = weighted((2, 1), (2, 2), (3, 4), (3, 8), (2, 16), (1, 32), (1, 5), (1, 12))
        self.uneven, self.mostly = one_in(2), weighted((2, True), (1, False))
        self.again = one_in(3)
        self.ragged = one_in(4)
        self.part = st.sampled_from((0, 0, 1, 2, 3, 5, 8, 12, 16, 17, 33))
        self.length = st.sampled_from((1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 50, 65, 100, 129))
        self.head_dim = weighted((3, 16), (2, 8), (2, 32), (2, 64), (1, 24))
        self.dtype = weighted((5, "float32"), (2, "bfloat16"), (1, "float16"), (1, "float64"))
        if self.of_npu:
            self.dtype = weighted((4, "bfloat16"), (3, "float16"), (1, "float32"))
        if self.place.as_trained:
            self.per_rank = weighted((3, 128), (2, 64), (2, 256), (1, 16), (1, 100), (1, 7))
            self.head_dim = weighted((4, 64), (3, 128), (1, 32), (1, 80), (1, 192), (1, 16))
            self.dtype = weighted((6, "bfloat16"), (2, "float16"), (2, "float32"))
        self.values: Any = weighted(
            (8, "normal"), (1, "large"), (1, "tiny"), (1, "one_hot"), (1, "negative")
        )
        self.masks, self.most = Masks(swarm), swarm.place.max_cost
        if self.place.ranks == "simulated":
            self.most *= COSTS_LESS
        self.has_mask = weighted((2, "none"), (4, "causal"), (4, "tree"))
        self.has_layout = one_in(4)
        self.float_mask = one_in(4)
        self.handwritten = one_in(2)
        self.masking: Any = weighted((3, "masked_fill"), (1, "where"), (1, "add"))
        self.trains = weighted((3, True), (1, False))
        self.grad_layout: Any = weighted((4, "contiguous"), (1, "transposed"), (1, "expanded"))
        self.inside = one_in(2)
        self.scale = weighted((14, None), *((1, scale) for scale in SCALES))
        self.scored = one_in(3)
        self.checkpoints = one_in(8)
        self.module: Any = weighted((10, "none"), (2, "fsdp"), (1, "ddp"))
        self.ulysses = weighted((3, 1), (1, 2))
        self.lse = one_in(4)

    def _takes(self, method: Method) -> bool:
        """Whether the place has that method."""
        if self.of_npu:
            return isinstance(method, AllGather | Ulysses | Heads)
        return self.place.ranks != "simulated" or not _replaces_sdpa(method)

    def draw(self, draw: Draw, backend: str) -> Program:
        """A valid program with a method; eager where it has too many ranks to compile for each."""
        method = draw(self.flex) if draw(self.is_flex) else draw(self.method)
        mesh = self._mesh(draw, method)
        if isinstance(method, Ring | ContextParallel):
            lse = draw(self.lse) and not _replaces_sdpa(method)
            method = replace(method, return_lse=lse)
            mesh = replace(mesh, method=method)
        if isinstance(method, Ring) and mesh.degree % 2 == 0:
            method = replace(method, ulysses=draw(self.ulysses))
            mesh = replace(mesh, method=method)
        if backend != "none" and mesh.degree > self.most_compiled:
            mesh = replace(mesh, world_size=draw(self.few) * mesh.data * mesh.tensor)
        if backend == "inductor" and mesh.world_size > self.most_compiled:
            mesh = replace(mesh, world_size=mesh.degree, data=1, tensor=1)
        eager = backend == "none" or not isinstance(method, Ring)  # it compiles for each length
        few = 2 <= mesh.degree <= MOST_RAGGED
        if method in RAGGED and eager and few and draw(self.ragged):
            mesh = self._ragged(draw, mesh)
        plugin = plugin_for(method.kind)
        p = self._compiled(draw, self._whole(draw, method, mesh), backend)
        if p.training is not None and p.compile is None and draw(self.checkpoints):
            p = replace(p, surround=Surround(checkpoint="full"))
        around = self._in_module(draw, p) if p.compile is None else self._again(draw, p)
        for simpler in (around, p, replace(p, compile=None), replace(p, training=None)):
            further = plugin.problems_on(self.place.device, simpler)
            if not problems(simpler) and not any(further):
                return simpler
        return _plain(mesh)

    def _mesh(self, draw: Draw, method: Method) -> Mesh:
        """The ranks: threads of one process, or sometimes processes, which are few."""
        degree, (data, tensor) = draw(self.degree), draw(self.second)
        if isinstance(method, FlexContextParallel):
            degree, data, tensor = min(degree, MOST_FLEX, self.most_compiled), 1, 1
        # What DTensor does with uneven and empty shards hangs or crashes in processes alone.
        apart = draw(self.placed_apart if method == AllGather() else self.apart)
        if (apart and self.place.ranks == "all") or _replaces_sdpa(method):
            many = draw(self.many_apart) and not isinstance(method, FlexContextParallel)
            degree = 8 if many else draw(self.few)
            data, tensor = (data, tensor) if degree <= COMPILED_DEGREE else (1, 1)
            size = degree * data * tensor
            return Mesh(world_size=size, ranks="processes", data=data, tensor=tensor, method=method)
        data, tensor = (data, tensor) if degree <= 16 else (1, 1)
        return Mesh(world_size=degree * data * tensor, data=data, tensor=tensor, method=method)

    def _in_module(self, draw: Draw, p: Program) -> Program:
        """The program within a module that FSDP2 or DDP wraps, which is none where that does not
        go."""
        if p.training is None or p.mesh is None or self.place.ranks != "all":
            return p
        module: Any = draw(self.module)
        if module == "none":
            return p
        plain = replace(p.q, layout=Layout())
        return replace(
            p, q=plain, k=plain, v=plain, surround=replace(p.surround, projections=True),
            mesh=replace(p.mesh, module=module),
        )  # fmt: skip

    def _again(self, draw: Draw, p: Program) -> Program:
        """The program called again with other extents, for which every rank compiles anew: few
        ranks, as that is dear."""
        if not draw(self.again):
            return p
        mesh = p.mesh
        assert mesh is not None and p.compile is not None
        each_compiles = p.compile.backend == "inductor" and not self.place.one_rank
        if each_compiles and mesh.world_size > FEWEST:
            return p
        if mesh.degree == self.most_compiled:
            mesh = replace(mesh, world_size=2 * mesh.data * mesh.tensor)
        length = draw(self.per_rank) * mesh.degree
        call = Call(batch=draw(self.batch) * mesh.data, q_len=length, kv_len=length)
        return replace(p, mesh=mesh, calls=(call,))

    def _ragged(self, draw: Draw, mesh: Mesh) -> Mesh:
        """Ranks of one dimension that have lengths of their own."""
        lengths = tuple(draw(self.part) for _ in range(mesh.degree))
        if lengths == tuple(chunks(sum(lengths), mesh.degree)):
            lengths = (*[1] * (mesh.degree - 1), 4)
        return replace(mesh, world_size=mesh.degree, data=1, tensor=1, lengths=lengths)

    def _whole(self, draw: Draw, method: Method, mesh: Mesh) -> Program:
        shape = self._shape(draw, method, mesh)
        mask = self._mask(draw, method, shape)
        dtype, values = draw(self.dtype), draw(self.values)
        if isinstance(method, ContextParallel):
            dtype = self._of_fused(dtype, method)
        layout = BSHD if draw(self.has_layout) else Layout()
        entry = Input(dtype=dtype, values=values, layout=layout)
        is_flex = isinstance(method, FlexContextParallel)
        forward_only = (is_flex and not self.place.gpu) or _replaces_sdpa(method)
        trains = draw(self.trains) and not forward_only
        scored = isinstance(method, FlexContextParallel) and draw(self.scored)
        return Program(
            kernel=self._kernel(draw, method, shape, mask),
            shape=shape,
            q=entry, k=entry, v=entry,
            mask=mask,
            score_mod=Alibi(inner=Score()) if scored else None,
            mesh=mesh,
            training=Training(grad_layout=draw(self.grad_layout)) if trains else None,
        )  # fmt: skip

    def _of_fused(self, dtype: FloatDtype, method: ContextParallel) -> FloatDtype:
        """`dtype`, or another that fused SDPA takes."""
        if self.place.gpu and method.operator == "flash" and dtype == "float32":
            return "bfloat16"
        return "float32" if dtype == "float64" else dtype

    def _shape(self, draw: Draw, method: Method, mesh: Mesh) -> Shape:
        q_heads, kv_heads = draw(self.heads)
        if isinstance(method, Ring | ContextParallel):
            q_heads = kv_heads
        over = mesh.tensor * (mesh.degree if isinstance(method, Heads | Ulysses) else 1)
        over *= method.ulysses if isinstance(method, Ring) else 1
        if over > 8:
            q_heads = kv_heads = 1
        length = sum(mesh.lengths) or self._length(draw, method, mesh.degree)
        shape = Shape(
            batch=draw(self.batch) * mesh.data,
            q_heads=q_heads * over,
            kv_heads=kv_heads * over,
            q_len=length,
            kv_len=length,
            head_dim=draw(self.head_dim) if mesh.degree <= 16 or self.place.gpu else 8,
        )
        if cost(shape) <= self.most:
            return shape
        if not isinstance(method, FlexContextParallel) and not mesh.lengths:
            length = 2 * mesh.degree
        return replace(
            shape, batch=mesh.data, q_heads=over, kv_heads=over, q_len=length, kv_len=length,
            head_dim=16 if self.place.gpu else 8,
        )  # fmt: skip

    def _length(self, draw: Draw, method: Method, degree: int) -> int:
        """As many positions for each rank, or, where the method takes that, however many."""
        if isinstance(method, FlexContextParallel):
            halves = 2 if method.balance == "per_document" else 1
            return degree * FLEX_BLOCK * halves
        any_ring = isinstance(method, Ring) and method.order == "contiguous" and method.ulysses == 1
        takes_any = any_ring or method in (AllGather(), Heads())
        if takes_any and draw(self.mostly if method == AllGather() else self.uneven):
            length = int(draw(self.length))
            # Some ranks have nothing where there is less than one for each.
            return 1 + length % (degree - 1) if degree > 1 and draw(self.mostly) else length
        pairs = 2 if isinstance(method, Ring | ContextParallel) else 1
        return int(min(draw(self.per_rank) * degree * pairs, LONGEST))

    def _mask(self, draw: Draw, method: Method, shape: Shape) -> Mask | None:
        kind = draw(self.has_mask)
        if isinstance(method, ContextParallel):
            return Causal() if method.balance != "none" or kind != "none" else None
        if kind == "causal" or (kind == "none" and isinstance(method, FlexContextParallel)):
            return Causal()
        mask = self.masks.draw(draw, shape, depth=1) if kind == "tree" else None
        # What a row that sees no key gives is not documented for the NPU's operator.
        hides = self.of_npu and may_hide_everything(mask, Scene(Program(shape=shape, mask=mask)))
        return None if hides else mask

    def _kernel(self, draw: Draw, method: Method, shape: Shape, mask: Mask | None) -> Kernel:
        grouped, scale = shape.q_heads != shape.kv_heads, draw(self.scale)
        if isinstance(method, FlexContextParallel):
            axes = mask_axes(mask) if mask is not None else frozenset()
            spec = BlockMaskSpec(batch="b" in axes, heads="h" in axes)
            lse = draw(self.lse)
            return Flex(scale=scale, block_mask=spec, enable_gqa=grouped, return_lse=lse)
        if isinstance(method, ContextParallel):
            return Sdpa(scale=scale, mask_form="bool" if mask is None else "is_causal")
        axes = mask_axes(mask) if mask is not None else frozenset()
        broadcast: Any = tuple(axis for axis in ("b", "h") if axis not in axes)
        if self.of_npu:
            whole: Any = "BNSS" if "h" in axes else "B1SS" if "b" in axes else "11SS"
            layout = draw(self.input_layout)
            return NpuFusionAttention(input_layout=layout, scale=scale, mask_shape=whole)
        if isinstance(method, Ring):
            return Sdpa(backend="math", scale=scale, broadcast=broadcast)
        if draw(self.handwritten):
            return Handwritten(masking=draw(self.masking), scale=None)
        form: Any = "float" if mask is not None and draw(self.float_mask) else "bool"
        return Sdpa(scale=scale, mask_form=form, broadcast=broadcast, enable_gqa=grouped)

    def _compiled(self, draw: Draw, p: Program, backend: Any) -> Program:
        assert p.mesh is not None and p.mesh.method is not None
        plugin = plugin_for(p.mesh.method.kind)
        if backend == "none":
            return p
        inside = draw(self.inside) or not plugin.traced or _replaces_sdpa(p.mesh.method)
        return replace(p, compile=Compile(backend=backend, via="local" if inside else "compile"))


def _replaces_sdpa(method: Method) -> bool:
    """Whether it is torch's context manager, which ranks of one process cannot enter together."""
    return isinstance(method, ContextParallel) and method.by == "manager"


def _plain(mesh: Mesh) -> Program:
    """A program of that many ranks that is valid whatever was drawn."""
    size = mesh.degree
    shape = Shape(q_len=2 * size, kv_len=2 * size)
    ranks: Any = "simulated" if size == 1 else mesh.ranks
    return Program(shape=shape, mesh=Mesh(world_size=size, ranks=ranks, method=AllGather()))
