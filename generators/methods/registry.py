"""The methods' plug-ins by `kind`, found by convention, as those of kernels are.

The plug-in of the method `x` is `PLUGIN` of `attnfuzz.generators.methods.x.plugin`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, get_args

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.base import MethodPlugin
from attnfuzz.generators.methods.specs import Method
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene

KINDS: tuple[str, ...] = tuple(spec.kind for spec in get_args(get_args(Method)[0]))
"""The `kind` of every method, in the order of their registration."""


def plugin_for(kind: str) -> MethodPlugin[Any]:
    """The plug-in of the method of that kind."""
    plugin: MethodPlugin[Any] = import_module(f"attnfuzz.generators.methods.{kind}.plugin").PLUGIN
    return plugin


def method_of(program: Program) -> MethodPlugin[Any] | None:
    """The plug-in of the program's method, None where it has none."""
    if program.mesh is None or program.mesh.method is None:
        return None
    return plugin_for(program.mesh.method.kind)


def outputs_of(scene: Scene) -> tuple[str, ...]:
    """The names of what the attention function returns: the log-sum-exp too where the kernel gives
    it, or the method that it is called by."""
    method = method_of(scene.program)
    if method is not None and method.returns_lse(scene.program):
        return ("out", "lse")
    return plugin_of(scene.program).outputs(scene)


def learns_lse(program: Program) -> bool:
    """Whether it returns a log-sum-exp that has gradients."""
    method, kernel = method_of(program), plugin_of(program)
    if method is None or not method.returns_lse(program):
        return kernel.returns_lse(program.kernel)
    return method.learns_lse
