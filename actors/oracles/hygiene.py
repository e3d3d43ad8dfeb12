"""The hygiene oracle: no more compilations than shapes call for, no graph breaks, and no silent
falling back.

One function may be compiled once per distinct call shape (and number that it is given), and once
more where dynamo first specialises and then generalises. Where one run calls it more than once, the
job says for how many shapes and integers (`oracles.shapes`). A recompile because the grad mode or
functorch's state changed does not count: reentrant checkpointing and transforms change them. Costs
nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from attnfuzz.actors.child.compiler_log import CompilerLog
from attnfuzz.actors.child.outcomes import Data, Rejected, diff
from attnfuzz.actors.oracles.oracle import Judged, Oracle, Run, fail_on


class Hygiene(Oracle):
    """Judges what the compiler did while a compiled program ran."""

    def check(self, run: Run) -> None:
        if run.log is None:
            return
        execution, log, call = self.execution, run.log, run.call
        assert execution.compile is not None
        dynamic, calls = execution.compile.get("dynamic"), calls_of(execution)
        settings = execution.settings.get("oracles") or {}
        each = settings.get("shapes") or 1
        evidence = {"recompile reasons": "\n".join(log.recompiles())}
        if limit_is_the_programs(calls, dynamic, each):
            execution.skipped["hygiene"] = "more static shapes than dynamo's recompile limit"
            return
        found = too_many_compilations(log, calls, dynamic, call, each)
        fail_on("recompile_limit", "hygiene", found, run.layer, evidence)
        kind = "recompile_limit" if log.gave_up else "graph_break"
        if settings.get("disables"):  # the program breaks it itself
            log.graph_breaks = [r for r in log.graph_breaks if "torch.compiler.disable" not in r]
        for text in settings.get("breaks") or ():  # torch itself does, in its kernel
            log.graph_breaks = [reason for reason in log.graph_breaks if text not in reason]
        if not log.gave_up:
            evidence["graph breaks"] = "\n\n".join(log.graph_breaks)
            self._refuse_breaks(log.graph_breaks)
            fail_on(kind, "hygiene", log.broken(call), run.layer, evidence)
        fail_on(kind, "hygiene", log.fallen_back(call), run.layer, evidence)

    def _refuse_breaks(self, reasons: list[str]) -> None:
        """Raises `Rejected` where a graph break is for a reason that is a refusal by design."""
        for reason in reasons:
            why = self.execution.refusal_of([f"torch._dynamo.exc.Unsupported: {reason}"])
            if why is not None:
                raise Rejected(why)


def calls_of(execution: Judged) -> list[tuple[Any, ...]]:
    """What each call may be compiled for: its shape, and the number that it is given where that is
    a Python number which the compiled function gets to see (`oracles.numbers` of the job)."""
    settings = execution.settings.get("oracles") or {}
    return execution.program.compiled_for(bool(settings.get("numbers")))


def too_many_compilations(
    log: CompilerLog, calls: list[tuple[Any, ...]], dynamic: bool | None, call: int, each: int = 1
) -> list[Data]:
    """Frames compiled more often than the calls so far, `calls[: call + 1]`, justify, each of which
    has as many shapes."""
    shapes = len(set(calls[: call + 1])) * each
    allowed = shapes + (1 if dynamic is not False and shapes > 1 else 0)
    return [
        diff(frame, "compilations", f"at most {allowed}", count, call=call)
        for frame, count in sorted(log.counted().items())
        if count > allowed
    ]


def limit_is_the_programs(
    calls: list[tuple[Any, ...]], dynamic: bool | None, each: int = 1
) -> bool:
    """Whether the program itself, with static shapes, has more shapes than dynamo's limit, `each`
    in every call."""
    return dynamic is False and len(set(calls)) * each > torch._dynamo.config.recompile_limit
