"""Methods that call the kernel on what each rank has, and how that is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.base import Function, M, MethodPlugin
from attnfuzz.generators.methods.sharding import Sharding, local_scene
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene, indented

_SIZE = re.compile(r"shape=(torch\.Size\(\([^()]*\)\)), stride=(\([^()]*\))")

MASKS = ("mask", "attn_mask", "atten_mask")
"""What kernels call the mask tensor that they are given."""


class AroundKernel(MethodPlugin[M]):
    """Shards, does what `before` says, calls `attend`, does what `after` says, and gathers."""

    mask_placement = "Replicate()"
    """How the method's own dimension of the mesh places the rows of a mask, or its heads; `{dim}`
    stands for the dimension."""

    def before(self, sharding: Sharding) -> list[str]:
        """Statements between the sharded q, k and v and the call of the kernel."""
        return []

    def after(self, sharding: Sharding) -> list[str]:
        """Statements between the kernel's result, `out`, and the gathering of it."""
        return []

    def helpers(self, sharding: Sharding) -> list[Function]:
        """The functions that `before` and `after` call."""
        return []

    def functions(
        self, scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
    ) -> list[Function]:
        sharding = Sharding(scene.program, self.shared)
        lines = [*sharding.shard, *self.before(sharding)]
        for name in inputs.arguments:
            if name in MASKS:
                lines += self.rows(sharding, name, plugin.mask_shape(scene))
        functions = self.helpers(sharding)
        if compiles_locally(scene.program):
            result = f"attend({', '.join(names)})"
            functions.append(
                [f"def attend({', '.join(names)}):",
                 *indented(self.here(scene, plugin, inputs, sharding, "return "))]
            )  # fmt: skip
            lines.append(f"out = {result}")
        else:
            lines += self.here(scene, plugin, inputs, sharding, "out = ")
        lines = _with_size([*lines, *self.after(sharding), *sharding.returned("out")])
        return [*functions, attention(scene, names, lines)]

    def rows(self, sharding: Sharding, name: str, shape: tuple[int, ...]) -> list[str]:
        """Statements that leave of the mask what the kernel is called with."""
        axis = len(shape) - 2 if self.shared == "length" else len(shape) - 3
        split = axis >= 0 and shape[axis] != 1
        last = self.mask_placement.format(dim=axis) if split else "Replicate()"
        return sharding.shard_mask(name, shape, last)

    def here(
        self, scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, sharding: Sharding, last: str
    ) -> list[str]:
        """The kernel called on what one rank has; `last` is what its result is put behind."""
        here = local_scene(scene, sharding, by_heads=self.by_heads)
        body = plugin.call(here, inputs)
        lines = [*body.statements, f"{last}{body.result[0]}"]
        if body.contexts:
            lines = [f"with {', '.join(body.contexts)}:", *indented(lines)]
        return here.with_extents(lines)

    def takes_calls(self, program: Program) -> bool:
        return not self.mesh(program).lengths

    def takes_parts(self, program: Program) -> bool:
        return self.shared == "length" and not self.mesh(program).lengths

    @property
    def by_heads(self) -> bool:
        """Whether the kernel is called on some of the heads."""
        return self.shared == "heads"

    def problems(self, program: Program) -> Iterator[Problem]:
        plugin, mesh, shape = plugin_of(program), self.mesh(program), program.shape
        if not plugin.shareable(program.kernel, "heads" if self.by_heads else "rows"):
            yield Problem("kernel", f"expected one that mesh.method {self.kind} may call on parts")
        over = mesh.tensor * (mesh.degree if self.by_heads else 1)
        for name in ("q_heads", "kv_heads"):
            if getattr(shape, name) % over:
                yield Problem(f"shape.{name}", f"expected a multiple of {over}, one for each rank")

    @property
    def kind(self) -> str:
        """The method's name."""
        return str(self.spec_class.kind)


def _with_size(lines: list[str]) -> list[str]:
    """The lines with the size of the whole, and its strides, under a name, where two need them."""
    found = _SIZE.findall("\n".join(lines))
    if len(found) < 2 or len(set(found)) > 1:
        return lines
    named = [_SIZE.sub("shape=size, stride=stride", line) for line in lines]
    return [f"size, stride = {', '.join(found[0])}", *named]


def attention(scene: Scene, names: list[str], lines: list[str]) -> Function:
    """The attention function; where only what each rank computes is compiled, that is an argument
    of it."""
    arguments = [*names, *(["attend=attend"] if compiles_locally(scene.program) else [])]
    return [f"def attention({', '.join(arguments)}):", *indented(lines)]


def compiles_locally(program: Program) -> bool:
    """Whether only what each rank computes by itself is compiled."""
    return program.compile is not None and program.compile.via == "local"
