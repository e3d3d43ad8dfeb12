"""Programs like a given one but some steps smaller: what a compiler's time is compared over."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.scores import Repeated, ScoreMod
from attnfuzz.generators.model.tree import located, put, walk

STRIDE = 2
"""How many steps lie between the sizes that are compared."""

TOO_MUCH = 2.0
"""How many times as long the last `STRIDE` steps may take as the `STRIDE` before them. What doubles
with each step takes four times as long; a cube of `LEAST_STEPS` less than this."""

LEAST_STEPS = 8


def most_steps(score_mod: ScoreMod | None) -> int:
    """The largest `times` of its repeated steps; 0 where there are none."""
    nodes = [] if score_mod is None else walk(score_mod)
    return max((node.times for node in nodes if isinstance(node, Repeated)), default=0)


def with_steps(program: Program, fewer: int) -> Program:
    """The program with `fewer` steps less wherever it repeats as many as it does at most."""
    most, changed = most_steps(program.score_mod), program
    for path, _, node in located(program):
        if isinstance(node, Repeated) and node.times == most:
            inner = next(n for at, _, n in located(changed) if at == path)
            changed = put(changed, path, replace(inner, times=most - fewer))
    return changed
