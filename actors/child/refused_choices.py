"""Why Inductor is left without a choice: `maybe_append_choice` takes every NotImplementedError for
"this one does not fit", and what is raised in the end says nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attnfuzz.actors.child import exceptions
from attnfuzz.actors.child.outcomes import Data

EVIDENCE = "refused choice"
NAME = "maybe_append_choice"


class RefusedChoices:
    """For which exception Inductor left out the last kernel that it tried, if it did."""

    def __init__(self) -> None:
        self._last: NotImplementedError | None = None

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Has Inductor's templates tell why a kernel is left out while inside."""
        from torch._inductor.codegen.common import KernelTemplate
        from torch._inductor.select_algorithm import TritonTemplate

        with ExitStack() as after:
            for template in (KernelTemplate, TritonTemplate):
                after.callback(setattr, template, NAME, getattr(template, NAME))
                setattr(template, NAME, self._noting(getattr(template, NAME)))
            yield

    def _noting(self, append: Callable[..., Any]) -> Callable[..., Any]:
        def maybe_append_choice(template: Any, choices: list[Any], **options: Any) -> Any:
            self._last = append(template, choices, **options)
            return self._last

        return maybe_append_choice

    def explain(self, raised: Data, evidence: Data, source: Path) -> None:
        """Gives a NoValidChoicesError the frames of what was swallowed before, if anything was."""
        if not raised["type"].endswith("NoValidChoicesError") or self._last is None:
            return
        raised["frames"] = list(exceptions.frames(self._last, source)) or raised["frames"]
        evidence[EVIDENCE] = exceptions.stack(self._last)
