"""Ulysses, written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.methods.base import Function
from attnfuzz.generators.methods.local import AroundKernel
from attnfuzz.generators.methods.sharding import Sharding
from attnfuzz.generators.methods.ulysses.spec import Ulysses
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program


class UlyssesPlugin(AroundKernel[Ulysses]):
    """The mask keeps all rows; of one that differs between heads, those of this rank's heads."""

    spec_class = Ulysses
    mask_placement = "Shard({dim})"

    @property
    def by_heads(self) -> bool:
        return True

    def rows(self, sharding: Sharding, name: str, shape: tuple[int, ...]) -> list[str]:
        axis = len(shape) - 3
        split = axis >= 0 and shape[axis] > 1
        return sharding.shard_mask(name, shape, f"Shard({axis})" if split else "Replicate()")

    def before(self, sharding: Sharding) -> list[str]:
        return ["q, k, v = to_heads(q), to_heads(k), to_heads(v)"]

    def after(self, sharding: Sharding) -> list[str]:
        return ["out = to_length(out)"]

    def helpers(self, sharding: Sharding) -> list[Function]:
        if self.spec(sharding.program).by == "dtensor":
            return [
                redistributed("to_heads", "The whole length of some heads.", sharding, 2, 1),
                redistributed("to_length", "A part of the length, of all heads.", sharding, 1, 2),
            ]
        group = f"{sharding.own_mesh}.get_group()"
        return [
            _exchanged("to_heads", "The whole length of some heads.", sharding, group, 1, 2),
            _exchanged("to_length", "A part of the length, of all heads.", sharding, group, 2, 1),
        ]

    def problems(self, program: Program) -> Iterator[Problem]:
        yield from super().problems(program)
        degree, shape = self.mesh(program).degree, program.shape
        for name in ("q_len", "kv_len"):
            if getattr(shape, name) % degree:
                yield Problem(f"shape.{name}", f"expected a multiple of {degree}, one a rank")


def redistributed(name: str, doc: str, sharding: Sharding, before: int, after: int) -> Function:
    """A function of that name: what is sharded along the dimension `before` is along `after`; of
    two dimensions of the mesh, along the inner one."""
    old, new = (f"Shard({dim})" for dim in (before, after))
    if sharding.inner > 1:
        old, new = (sharding.placements("Shard(2)", inner=one) for one in (old, new))
    else:
        old, new = sharding.placements(old), sharding.placements(new)
    return [
        f"def {name}(x):",
        f'    """{doc}"""',
        f"    x = DTensor.from_local(x, MESH, {old})",
        f"    return x.redistribute(MESH, {new}).to_local()",
    ]


def _exchanged(
    name: str, doc: str, sharding: Sharding, group: str, split: int, joined: int
) -> Function:
    return [
        f"def {name}(x):",
        f'    """{doc}"""',
        f"    x = torch.stack(x.chunk({sharding.mesh.degree}, dim={split}))",
        f"    x = all_to_all_single_autograd(x, None, None, {group})",
        f"    return torch.cat(x.unbind(), dim={joined})",
    ]


PLUGIN = UlyssesPlugin()
