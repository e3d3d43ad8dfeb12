"""Compiling ahead of time, as a phase: torch.export and AOTInductor report none as dynamo does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from attnfuzz.actors.child.outcomes import Data
from attnfuzz.actors.child.phases import Phases


@contextmanager
def reporting(compile: Data, phases: Phases) -> Iterator[None]:
    """Within, a program whose `compile` says that it is exported is in the phase "compile" while it
    is, and while AOTInductor compiles it, then in "forward"."""
    if compile.get("via") not in ("export", "aoti"):
        yield
        return
    import torch.export

    def reported(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            phases.enter("compile")
            result = function(*args, **options)
            phases.enter("forward")
            return result

        return call

    with ExitStack() as stack:
        for module, name in (
            (torch.export, "export"), (torch._inductor, "aoti_compile_and_package"),
        ):  # fmt: skip
            function = reported(getattr(module, name))
            stack.enter_context(patch.object(module, name, function))
        yield
