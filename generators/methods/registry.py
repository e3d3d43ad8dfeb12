"""The methods' plug-ins by `kind`, found by convention, as those of kernels are.

The plug-in of the method `x` is `PLUGIN` of `attnfuzz.generators.methods.x.plugin`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, get_args

from attnfuzz.generators.methods.base import MethodPlugin
from attnfuzz.generators.methods.specs import Method
from attnfuzz.generators.model.program import Program

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
