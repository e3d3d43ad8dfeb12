"""Which layer is to blame: the first of dynamo, aot_eager and Inductor at which a failure shows; of
what AOTInductor compiled, the first of export, aot_eager and Inductor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from attnfuzz.actors.child.outcomes import Data

LAYERS = (("eager", "dynamo"), ("aot_eager", "aot_eager"))
"""Backends that stop earlier, with the layer that each adds."""

OWN = {"eager": "dynamo", "aot_eager": "aot_eager", "inductor": "inductor"}


def own(compile: Data) -> str:
    """The last layer that a program's `compile` goes through."""
    return "export" if compile.get("via") == "export" else OWN.get(compile["backend"], "inductor")


def blame(compile: Data, failure: Data, rerun: Callable[[str], Data | None]) -> str:
    """The layer that `failure` of a program, compiled as `compile` says, comes from.
    `rerun(backend)` gives the failure of the same program with another backend, None if there is
    none."""
    via = compile.get("via")
    for earlier, layer in () if via == "export" else LAYERS:
        if earlier == compile["backend"]:
            break
        other = rerun(earlier)
        if other is not None and alike(failure, other):
            return "export" if via == "aoti" and earlier == "eager" else layer
    return own(compile)


@contextmanager
def stopping_at(backend: str) -> Iterator[None]:
    """Within, `torch.compile` has that backend, and AOTInductor's package is what was exported: for
    "aot_eager" decomposed as for Inductor, for "eager" as it is."""
    compile = torch.compile

    def compiled(model: Any = None, **options: Any) -> Any:
        kept = {name: options[name] for name in ("fullgraph", "dynamic") if name in options}
        if model is None:
            return partial(compiled, **kept)
        return compile(model, backend=backend, **kept)

    def packaged(exported: Any, **_: Any) -> Any:
        if backend == "eager":
            return exported
        from torch._inductor.decomposition import select_decomp_table  # takes seconds to import

        return exported.run_decompositions(select_decomp_table())

    with (
        patch.object(torch, "compile", compiled),
        patch.object(torch._inductor, "aoti_compile_and_package", packaged),
        patch.object(torch._inductor, "aoti_load_package", lambda exported: exported.module()),
    ):
        yield


def alike(failure: Data, other: Data) -> bool:
    """Whether two failures are one: the same kind and exception type, or the same properties of
    the same outputs wrong."""
    if failure["kind"] != other["kind"]:
        return False
    if failure["raised"] is not None or other["raised"] is not None:
        return _type(failure) == _type(other)
    return bool(_differing(failure) & _differing(other))


def _type(failure: Data) -> str | None:
    return failure["raised"]["type"] if failure["raised"] else None


def _differing(failure: Data) -> set[tuple[str, str]]:
    return {(d["output"], d["what"]) for d in failure["diffs"]}
