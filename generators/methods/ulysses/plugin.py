"""Ulysses, written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.methods.base import Function
from attnfuzz.generators.methods.local import AroundKernel
from attnfuzz.generators.methods.sharding import Sharding
from attnfuzz.generators.methods.ulysses.spec import Ulysses
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import indented


class UlyssesPlugin(AroundKernel[Ulysses]):
    """The mask keeps all rows; of one that differs between heads, those of this rank's heads."""

    spec_class = Ulysses
    mask_placement = "Shard({dim})"

    @property
    def by_heads(self) -> bool:
        return True

    def rows(self, sharding: Sharding, name: str, shape: tuple[int, ...]) -> list[str]:
        axis = len(shape) - 3
        split = axis >= 0 and shape[axis] != 1
        return sharding.shard_mask(name, shape, f"Shard({axis})" if split else "Replicate()")

    def before(self, sharding: Sharding) -> list[str]:
        return ["q, k, v = to_heads(q), to_heads(k), to_heads(v)"]

    def after(self, sharding: Sharding) -> list[str]:
        """A part of the length again, of all heads."""
        if self.spec(sharding.program).by == "dtensor":
            return _redistribution("out", sharding, 1, 2)
        return _exchange("out", sharding, 2, 1)

    def helpers(self, sharding: Sharding) -> list[Function]:
        if self.spec(sharding.program).by == "dtensor":
            return [redistributed("to_heads", sharding, 2, 1)]
        *lines, last = _exchange("x", sharding, 1, 2)
        return [["def to_heads(x):", *indented([*lines, last.replace("x = ", "return ", 1)])]]

    def problems(self, program: Program) -> Iterator[Problem]:
        yield from super().problems(program)
        degree, shape = self.mesh(program).degree, program.shape
        for name in ("q_len", "kv_len"):
            if getattr(shape, name) % degree:
                yield Problem(f"shape.{name}", f"expected a multiple of {degree}, one a rank")


def redistributed(name: str, sharding: Sharding, before: int, after: int) -> Function:
    """A function of that name: what is sharded along the dimension `before` is along `after`; of
    two dimensions of the mesh, along the inner one."""
    *lines, last = _redistribution("x", sharding, before, after)
    return [f"def {name}(x):", *indented([*lines, last.replace("x = ", "return ", 1)])]


def _redistribution(x: str, sharding: Sharding, before: int, after: int) -> list[str]:
    """Statements after which `x`, sharded along `before`, is along `after`."""
    old, new = (f"Shard({dim})" for dim in (before, after))
    if sharding.inner > 1:
        old, new = (sharding.placements("Shard(2)", inner=one) for one in (old, new))
    else:
        old, new = sharding.placements(old), sharding.placements(new)
    return [
        f"{x} = DTensor.from_local({x}, MESH, {old})",
        f"{x} = {x}.redistribute(MESH, {new}).to_local()",
    ]


def _exchange(x: str, sharding: Sharding, split: int, joined: int) -> list[str]:
    """Statements by which ranks give parts of `x` along `split` for parts along `joined`."""
    return [
        f"{x} = torch.stack({x}.chunk({sharding.mesh.degree}, dim={split}))",
        f"{x} = all_to_all_single_autograd({x}, None, None, {sharding.own_mesh}.get_group())",
        f"{x} = torch.cat({x}.unbind(), dim={joined})",
    ]


PLUGIN = UlyssesPlugin()
