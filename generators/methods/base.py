"""What a method's plug-in says: how it is written, what it needs, how it is simplified.

A new method is a package beside this module, named as its `kind`, with its dataclass in `spec`, an
object `PLUGIN` in `plugin`, and its dataclass in the union in `specs`. What most methods share,
sharding and gathering by DTensor, is in `generators.methods.sharding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar, Generic, TypeVar

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.methods.sharding import Sharding, chunks
from attnfuzz.generators.methods.specs import Method
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Mesh, Program
from attnfuzz.generators.render.scene import Scene

Function = list[str]

PLAIN_LENGTH = 16
"""Of a sequence whose length is nothing special."""

DEGREES = (2, 3, 4, 8, 16, 32)
"""A program of more ranks than one of these has a feature that says so."""

M = TypeVar("M", bound=Method)


class MethodPlugin(Generic[M]):
    """All that is particular to one method. `spec_class` is its dataclass."""

    spec_class: type[M]

    shared: ClassVar[str] = "length"
    """What the ranks of the method's own dimension of the mesh share: "length" or "heads"."""

    refusals: ClassVar[tuple[Refusal, ...]] = ()
    """What torch declines by design of what its programs may require."""

    traced: ClassVar[bool] = True
    """Whether the whole of it can be compiled, not only what each rank computes by itself."""

    local: ClassVar[bool] = True
    """Whether there is a function of what each rank computes by itself, which can be compiled."""

    learns_lse: ClassVar[bool] = True
    """Whether the log-sum-exp that it returns has gradients."""

    def takes_lengths(self, program: Program) -> bool:
        """Whether each rank may have a length of its own (`Mesh.lengths`)."""
        return False

    def takes_calls(self, program: Program) -> bool:
        """Whether no extent stands in its functions where each rank has as much as another, so that
        further calls may have other ones (`Program.calls`)."""
        return False

    def takes_parts(self, program: Program) -> bool:
        """Whether its function, given parts of q, k and v, is that of a module around it
        (`Mesh.module`): parts are contiguous, and nothing but the result comes back."""
        return False

    def returns_lse(self, program: Program) -> bool:
        """Whether it returns the log-sum-exp `[B, Hq, Lq]` too, of its own accord."""
        return bool(getattr(self.spec(program), "return_lse", False))

    def mesh(self, program: Program) -> Mesh:
        """The program's mesh."""
        assert program.mesh is not None
        return program.mesh

    def spec(self, program: Program) -> M:
        """The program's method, which is this one."""
        method = self.mesh(program).method
        assert isinstance(method, self.spec_class)
        return method

    # How it is written.

    def written(self, program: Program) -> Program:
        """The program as it is written, with what the method settles by itself."""
        return program

    def sharding(self, program: Program) -> Sharding:
        """How the program's tensors are sharded."""
        return Sharding(program, self.shared)

    def functions(
        self, scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
    ) -> list[Function]:
        """Functions and statements at top level, the last of them `attention(*names)`."""
        raise NotImplementedError

    def set_up(self, scene: Scene) -> list[str]:
        """Statements after those that make `MESH`."""
        lengths = self.mesh(scene.program).lengths
        return [f"RANK, LENGTHS = dist.get_rank(), {list(lengths)}"] if lengths else []

    # What it needs.

    def problems(self, program: Program) -> Iterator[Problem]:
        """What it needs of the rest of the program and is not so."""
        yield from ()

    def problems_on(self, device: str, program: Program) -> Iterator[Problem]:
        """What it needs besides where its tensors lie on `device`, as torch names it."""
        yield from ()

    # How its programs are simplified and described.

    def features(self, program: Program) -> Iterator[str]:
        """The method and every choice of it that is not the default."""
        method, mesh = self.spec(program), self.mesh(program)
        yield f"method.{method.kind}"
        yield from choices(method, f"method.{method.kind}")
        yield from (f"mesh.{name}" for name in ("data", "tensor") if getattr(mesh, name) > 1)
        yield from (f"mesh.degree.gt{few}" for few in DEGREES if mesh.degree > few)
        yield from [f"mesh.module.{mesh.module}"] * (mesh.module != "none")
        if mesh.lengths:
            yield "mesh.lengths"
            yield from ["mesh.lengths.0"] * (0 in mesh.lengths)
        elif self.shared == "length" and program.shape.q_len % mesh.degree:
            yield "mesh.uneven"

    def simpler(self, program: Program) -> Iterator[Program]:
        """Programs that may be simpler, the boldest change first: fewer ranks, with what they share
        as it is, or as much for each as before, or plain."""
        yield from fewer_lengths(program)
        mesh, shape = replace(self.mesh(program), lengths=()), program.shape
        for degree in (*range(1, 9), *range(10, mesh.degree, 2)):
            if degree >= mesh.degree:
                return
            fewer = replace(mesh, world_size=degree * mesh.data * mesh.tensor)
            heads = {
                name: max(1, getattr(shape, name) * degree // mesh.degree)
                for name in ("q_heads", "kv_heads")
            }
            lengths = [shape.q_len * degree // mesh.degree, PLAIN_LENGTH * degree]
            for each in ({}, heads, dict.fromkeys(heads, degree)):
                yield replace(program, mesh=fewer, shape=replace(shape, **each))
                if shape.q_len == shape.kv_len:
                    for length in lengths:
                        cut = replace(shape, q_len=length, kv_len=length, **each)
                        yield replace(program, mesh=fewer, shape=cut)


def fewer_lengths(program: Program) -> Iterator[Program]:
    """Programs whose ranks have no lengths of their own, are fewer, or have shorter ones."""
    mesh, shape = program.mesh, program.shape
    if mesh is None or not mesh.lengths:
        return
    alike = replace(mesh, lengths=())
    yield replace(program, mesh=alike)
    each = PLAIN_LENGTH * mesh.degree
    yield replace(program, mesh=alike, shape=replace(shape, q_len=each, kv_len=each))
    few = [one for count in (1, 2) for one in combinations(mesh.lengths, count)]
    less = [mesh.lengths[:i] + mesh.lengths[i + 1 :] for i in range(len(mesh.lengths))]
    shorter = [
        (*mesh.lengths[:i], length, *mesh.lengths[i + 1 :])
        for i, old in enumerate(mesh.lengths)
        for length in sorted({0, 1, old // 2, old - 1})
        if 0 <= length < old
    ]
    for lengths in (*few, *less, *shorter):
        total = sum(lengths)
        fitting = replace(mesh, world_size=len(lengths), lengths=lengths)
        if tuple(chunks(total, len(lengths))) == lengths:
            fitting = replace(fitting, lengths=())
        yield replace(program, mesh=fitting, shape=replace(shape, q_len=total, kv_len=total))
