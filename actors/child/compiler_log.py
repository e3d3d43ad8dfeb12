"""What dynamo did while a program ran: compilations, graph breaks, and falling back."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from attnfuzz.actors.child.outcomes import Data, diff

UNFUSED = "flex_attention called without torch.compile"
_GLOBAL_STATE = ("GLOBAL_STATE changed", "grad_mode", "FUNCTORCH", "functorch")


class CompilerLog:
    """What dynamo did since listening began: compilations, reasons, and flex_attention's warning
    that it runs unfused. `source` is the program's file."""

    def __init__(self, source: Path) -> None:
        self._source = str(source)
        self.warnings: list[str] = []
        self.graph_breaks: list[str] = []
        self.gave_up = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Forgets what was compiled before, and catches warnings within."""
        torch._dynamo.utils.clear_compilation_metrics()
        with self.going_on():
            yield

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Catches warnings within."""
        flex = torch.nn.attention.flex_attention
        getattr(flex, "_WARNINGS_SHOWN", set()).discard("flex_attention_performance")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                self.warnings.extend(str(warning.message) for warning in caught)

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, noting why the graph breaks while it runs, and whether dynamo gives up at its
        limit: making its arguments may compile something too."""

        def watched(*args: Any) -> Any:
            counters = torch._dynamo.utils.counters
            breaks, limits = counters["graph_break"], counters["unimplemented"]
            before = breaks.copy(), limits.copy()
            try:
                return function(*args)
            finally:
                self.graph_breaks += list(breaks - before[0])
                self.gave_up |= any("recompile limit" in why for why in limits - before[1])

        return watched

    def broken(self, call: int) -> list[Data]:
        """Breaks in the graph of the function under test, each by the first line of its reason:
        what fullgraph=True would have raised."""
        reasons = (reason.partition("\n")[0] for reason in self.graph_breaks)
        return [diff("attention", "graph", "whole", reason, call=call) for reason in reasons]

    @property
    def unfused(self) -> bool:
        """Whether flex_attention ran unfused, outside any compiled graph."""
        return any(UNFUSED in text for text in self.warnings)

    def fallen_back(self, call: int) -> list[Data]:
        """That a compiled program ran uncompiled without a word."""
        if self.unfused:
            what = "flex_attention", "execution", "compiled", "unfused, uncompiled"
            return [diff(*what, call=call)]
        if self.gave_up:
            return [diff("attention", "execution", "compiled", "uncompiled", call=call)]
        return []

    def compilations(self) -> list[Any]:
        """Dynamo's own record of each time it compiled the function under test, or what is left
        of it after a graph break, or of the module that it is the forward of; a BlockMask compiles
        functions of its own."""
        return [
            record
            for record in torch._dynamo.utils.get_compilation_metrics()
            if record.co_filename == self._source
            and re.search(r"attention|^forward$", record.co_name or "")
        ]

    def recompiles(self) -> list[str]:
        """Reasons of all recompiles, in order."""
        return [m.recompile_reason for m in self.compilations() if m.recompile_reason]

    def counted(self) -> Counter[str]:
        """Compilations of each of the frames that dynamo distinguishes, by its number and name,
        without those that a change of global state called for."""
        found: Counter[str] = Counter()
        for record in self.compilations():
            reason = record.recompile_reason or ""
            if not any(word in reason for word in _GLOBAL_STATE):
                frame = str(record.compile_id).lstrip("[!").partition("/")[0]
                found[f"{frame}:{record.co_name}"] += 1
        return found
