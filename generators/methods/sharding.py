"""The mesh of a program with a method, and how whole tensors are sharded over it and gathered.

DTensor does both, as it has the gradients of both: of a tensor that every rank has comes this
rank's part, and its gradient is that of the whole; and the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnfuzz.generators.model.program import Mesh, Program
from attnfuzz.generators.render.fold import WIDTH
from attnfuzz.generators.render.scene import Scene

DIMENSIONS = {"batch": 0, "heads": 1, "length": 2}
"""Of `[B, H, L, D]`."""

ULYSSES = "ulysses"

FURTHER = {"data": "batch", "tensor": "heads"}
"""Further dimensions of a mesh, by what of it they share."""


@dataclass(frozen=True)
class Sharding:
    """Sharding over the mesh of `program`, whose method shares `shared`: of its ranks, `inner`
    neighbours exchange positions for heads, and are a dimension of the mesh by themselves."""

    program: Program
    shared: str
    inner: int = 1

    @property
    def mesh(self) -> Mesh:
        """The program's mesh, which has a method."""
        assert self.program.mesh is not None
        return self.program.mesh

    @property
    def dimensions(self) -> list[tuple[str, int, str]]:
        """Name, extent and what is shared of each dimension of the mesh: further ones, the
        method's, and that of the ranks that exchange heads."""
        further = [(name, getattr(self.mesh, name), what) for name, what in FURTHER.items()]
        own = [(self.shared, self.size, self.shared), (ULYSSES, self.inner, self.shared)]
        return [one for one in further if one[1] > 1] + own[: 1 + (self.inner > 1)]

    @property
    def size(self) -> int:
        """How many ranks the method's own dimension has."""
        return self.mesh.degree // self.inner

    @property
    def is_flat(self) -> bool:
        """Whether the mesh has the method's dimension alone."""
        return len(self.dimensions) == 1

    def device_mesh(self, device: str) -> str:
        """The expression that makes `MESH`."""
        sizes = ", ".join(str(size) for _, size, _ in self.dimensions)
        names = ", ".join(f'"{name}"' for name, _, _ in self.dimensions)
        if self.is_flat:
            return f'dist.init_device_mesh("{device}", ({sizes},))'
        return f'dist.init_device_mesh("{device}", ({sizes}), mesh_dim_names=({names}))'

    @property
    def own_mesh(self) -> str:
        """The expression for the method's own dimension of the mesh."""
        return "MESH" if self.is_flat else f'MESH["{self.shared}"]'

    def placements(
        self, own: str, shape: tuple[int, ...] | None = None, inner: str | None = None
    ) -> str:
        """Of a tensor `[B, H, L, D]` that the method's dimension places as `own` says, and that of
        the ranks that exchange heads as `inner` does, like `own` by default; of a mask, `shape`
        says over which axes it is broadcast."""
        placed = []
        for _, _, what in self.dimensions[: -1 - (self.inner > 1)]:
            dim = DIMENSIONS[what]
            broadcast = shape is not None and (len(shape) < 4 or shape[dim] == 1)
            placed.append("Replicate()" if broadcast else f"Shard({dim})")
        last = [inner or own] if self.inner > 1 else []
        return f"[{', '.join([*placed, own, *last])}]"

    @property
    def parts(self) -> str:
        """Placements of q, k and v, and of the result, as they are sharded."""
        return self.placements(f"Shard({DIMENSIONS[self.shared]})")

    # -- the shape of what a rank has -----------------------------------------------------------

    @property
    def lengths(self) -> list[int]:
        """How many positions each rank of the method has, as DTensor and `torch.chunk` cut."""
        return [*self.mesh.lengths] or chunks(self.program.shape.q_len, self.mesh.degree)

    @property
    def is_even(self) -> bool:
        """Whether all parts are alike."""
        return len(set(self.lengths)) == 1 or self.shared != "length"

    @property
    def telling_rank(self) -> int:
        """The rank that tells most where one stands for all: the last where parts differ, as its
        part may be short or empty, or else one in the middle, which of three or more in a ring has
        blocks of a causal mask that come before its own and blocks that come after."""
        degree = self.mesh.degree
        return self.mesh.world_size - (degree - degree // 2 if self.is_even else 1)

    def global_shape(self, heads: int, length: int, dim: str) -> str:
        """Arguments for `DTensor.from_local` that say what the parts, of other sizes than this
        rank's, make up; `dim` is an expression."""
        stride = f"({heads * length} * {dim}, {length} * {dim}, {dim}, 1)"
        if dim.isdecimal():
            stride = str((heads * length * int(dim), length * int(dim), int(dim), 1))
        size = f"({self.program.shape.batch}, {heads}, {length}, {dim})"
        return f", shape=torch.Size({size}), stride={stride}"

    # -- text -----------------------------------------------------------------------------------

    @property
    def shard(self) -> list[str]:
        """The statements that leave of q, k and v, which every rank has whole, its parts; none
        within a module, which has parts."""
        if self.mesh.module != "none":
            return []
        if self.mesh.lengths:
            cut = "q, k, v = (t.split(LENGTHS, dim=2)[RANK] for t in (q, k, v))"
            if self.program.training is None:
                return [cut]
            summed = "DTensor.from_local(t, MESH).to_local(grad_placements=[Partial()])"
            return [f"q, k, v = ({summed} for t in (q, k, v))", cut]
        steps = ["DTensor.from_local(t, MESH)", f".redistribute(MESH, {self.parts}).to_local()"]
        together = [f"q, k, v = ({''.join(steps)} for t in (q, k, v))"]
        if len(together[0]) <= WIDTH:
            return together
        return [f"q, k, v = ({step} for t in (q, k, v))" for step in (steps[0], f"t{steps[1]}")]

    def whole(self, x: str, dim: int = 0) -> str:
        """The whole of `x`, this rank's part of a result `[B, Hq, Lq, Dv]`, or of another last
        dimension `dim`, as an expression."""
        shape, of_all = self.program.shape, ""
        if self.mesh.module != "none":
            return x
        if self.mesh.lengths:
            zeros = "(0, 0, sum(LENGTHS[:RANK]), sum(LENGTHS[RANK + 1 :]))"
            return f"DTensor.from_local(F.pad({x}, {zeros}), MESH, [Partial()]).full_tensor()"
        if not self.is_even:
            last = str(dim or shape.v_head_dim or shape.head_dim)
            of_all = self.global_shape(shape.q_heads, shape.q_len, last)
        return f"DTensor.from_local({x}, MESH, {self.parts}{of_all}).full_tensor()"

    def returned(self, out: str, lse: str = "", back: str = "") -> list[str]:
        """The last statements of an attention function that has this rank's `out` and, where it is
        something, the log-sum-exp `[B, Hq, Lq, 1]` of it; `back` is an index that orders the
        length."""
        index = f"[:, :, {back}]" if back else ""
        if not lse:
            return [f"return {self.whole(out)}{index}"]
        return [
            f"lse = {self.whole(lse, 1)}[:, :, {back or ':'}, 0]",
            f"return {self.whole(out)}{index}, lse",
        ]

    def shard_mask(self, name: str, shape: tuple[int, ...], own: str) -> list[str]:
        """Statements that leave of the mask `name` of `shape` what belongs to this rank's queries
        and heads; `own` is how the method's own dimension places it."""
        by_head = len(shape) == 4 and shape[1] > 1
        placed = self.placements(own, shape, "Shard(1)" if by_head else "Replicate()")
        if "Shard" not in placed:
            return []
        if self.mesh.lengths:
            return [f"{name} = {name}.split(LENGTHS, dim=-2)[RANK]"]
        whole = f"DTensor.from_local({name}, MESH)"
        return [f"{name} = {whole}.redistribute(MESH, {placed}).to_local()"]


def local_scene(scene: Scene, sharding: Sharding, *, by_heads: bool = False) -> Scene:
    """The scene in which one rank calls the kernel on what it has: its batches and heads."""
    p, mesh = scene.program, sharding.mesh
    over = mesh.tensor * (mesh.degree if by_heads else 1)
    shape = replace(
        p.shape,
        batch=p.shape.batch // mesh.data,
        q_heads=p.shape.q_heads // over,
        kv_heads=p.shape.kv_heads // over,
    )
    return replace(scene, program=replace(p, shape=shape, mesh=None), quoting=scene.quoting)


def chunks(length: int, count: int) -> list[int]:
    """The sizes of the parts into which `torch.chunk` cuts, and DTensor with it: as many as there
    are ranks, the last ones smaller or empty."""
    size = -(-length // count)
    return [max(0, min(size, length - i * size)) for i in range(count)]
