"""The kernels' plug-ins by `kind`, found by convention.

The plug-in of the kernel `x` is `PLUGIN` of `attnfuzz.generators.kernels.x.plugin`. It is imported
when it is first asked for, as plug-ins import the program, and the program their data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, get_args

from attnfuzz.generators.kernels.base import KernelPlugin
from attnfuzz.generators.kernels.specs import Kernel
from attnfuzz.generators.model.program import Program

KINDS: tuple[str, ...] = tuple(spec.kind for spec in get_args(get_args(Kernel)[0]))
"""The `kind` of every kernel, in the order of their registration."""


class _Registry(Mapping[str, KernelPlugin[Any]]):
    """Each package's `PLUGIN`, imported on demand."""

    def __getitem__(self, kind: str) -> KernelPlugin[Any]:
        if kind not in KINDS:
            raise KeyError(kind)
        plugin: KernelPlugin[Any] = import_module(
            f"attnfuzz.generators.kernels.{kind}.plugin"
        ).PLUGIN
        return plugin

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


REGISTRY: Mapping[str, KernelPlugin[Any]] = _Registry()


def plugin_of(program: Program) -> KernelPlugin[Any]:
    """The plug-in of the program's kernel."""
    return REGISTRY[program.kernel.kind]
