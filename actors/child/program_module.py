"""The program's source, executed as a module, and its runs."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

MODULE = "attention_program"

Outputs = dict[str, Any]


def execute_file(path: Path, name: str) -> ModuleType:
    """Executes the file as module `name`, registered so that dynamo and inspect find its source.
    Raises whatever it raises."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class ProgramModule:
    """The names that a rendered source defines; see docs/ARCHITECTURE.md."""

    def __init__(self, source: Path, name: str = MODULE) -> None:
        module = execute_file(source, name)
        self.attention: Callable[..., Any] = module.attention
        self.reference: Callable[..., Any] = module.reference
        self.compiled: Callable[..., Any] | None = getattr(module, "compiled", None)
        self.run: Callable[[Callable[..., Any], tuple[Any, ...]], Outputs] = module.run
        self._run_attention = getattr(module, "run_attention", self.run)
        self._run_compiled = getattr(module, "run_compiled", self._run_attention)
        self._inputs: Callable[..., Any] = module.inputs
        seeds: list[tuple[int, ...]] = [(seed,) for seed in getattr(module, "SEEDS", ())]
        numbers: list[tuple[Any, ...]] = [(one,) for one in getattr(module, "ARGUMENTS", ())]
        one_shape = [()] * max(1, len(seeds), len(numbers))
        self.calls: list[tuple[int, ...]] = [tuple(c) for c in getattr(module, "CALLS", one_shape)]
        """What `inputs` is given of the shape of each call."""
        self._seeds = seeds or [()] * len(self.calls)
        self._numbers = numbers or [()] * len(self.calls)
        self.rewrites = hasattr(module, "KEPT")
        """Whether all calls have the same tensors, which `inputs` writes anew."""

    def runner(self, layer: str) -> Callable[[Callable[..., Any], tuple[Any, ...]], Outputs]:
        """What runs the function under test, as it is written ("eager") or compiled: `run`, in the
        modes of the program."""
        return self._run_attention if layer == "eager" else self._run_compiled

    def inputs(self, call: int) -> tuple[Any, ...]:
        """Fresh arguments of that call: runs must not share what they may have written to."""
        made = self._inputs(*self.calls[call], *self._seeds[call], *self._numbers[call])
        return made if isinstance(made, tuple) else tuple(made)

    def compiled_for(self, numbers: bool) -> list[tuple[Any, ...]]:
        """What of each call it may be compiled for: its shape, and its number too with `numbers`,
        whose type matters."""
        if not numbers:
            return list(self.calls)
        pairs = zip(self.calls, self._numbers, strict=True)
        return [(*call, *map(repr, number)) for call, number in pairs]

    def is_redrawn(self, call: int) -> bool:
        """Whether that call has the shape of the call before it, and other numbers."""
        return call > 0 and self._seeds[call] != self._seeds[call - 1]

    def argument_names(self, count: int) -> list[str]:
        """What the function under test calls its `count` arguments."""
        names = list(inspect.signature(undecorated(self.attention)).parameters)
        return [names[i] if i < len(names) else f"argument {i}" for i in range(count)]


def undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is written, below what decorates it: `nested_compile_region` says in an
    attribute of its own what it wraps (`mark_compile_region` in _higher_order_ops/
    invoke_subgraph.py)."""
    for says in ("__marked_compile_region_fn__", "__wrapped__"):
        if (inner := getattr(function, says, None)) is not None:
            return undecorated(inner)
    return function
