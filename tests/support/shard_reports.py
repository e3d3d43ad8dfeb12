"""Reports of shards for a store, whose failures differ by their seeds alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnfuzz.actors.shard import Kept
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Outcome, Phase
from attnfuzz.generators.model.program import Program


@dataclass
class Report:
    """A shard's report, as a worker makes it."""

    index: int
    target: str = "cpu"
    hardware: str | None = None
    failures: list[tuple[Program, Outcome]] = field(default_factory=list)
    executed: int = 10
    counts: dict[str, int] = field(default_factory=lambda: {"passed": 9, "failed": 1})
    by_key: dict[str, int] = field(default_factory=dict)
    rejections: dict[str, int] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    cpu_s: float = 1.5
    known_cpu_s: float = 0.0
    wall_s: float = 2.0
    harness_cpu_s: float = 0.25
    predicted_cpu_s: float = 0.0
    stopped: tuple[Program, ...] = ()
    kept: tuple[Kept, ...] = ()
    parents: tuple[Program, ...] = ()


def wrong(output: str = "out") -> Outcome:
    diff = Diff(output=output, what="value", expected="1.0", actual="2.0", error=1.0, budget=1e-6)
    failure = Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.EAGER, layer=Layer.EAGER, diffs=(diff,)
    )
    return Outcome(status="failed", failure=failure)


def program(seed: int) -> Program:
    return Program(seed=seed)
