"""Programs like a given one but a step smaller: what a compiler's time is compared over."""

from __future__ import annotations

from dataclasses import replace

from generators.program import Program
from generators.scores import Repeated, ScoreMod
from generators.tree import located, put, walk

TOO_MUCH = 1.5
"""How many times as long a compiler may take for one step more, from `LEAST_STEPS` on: what is
linear in n steps takes n / (n - 1) times as long, what is quadratic the square of that."""

LEAST_STEPS = 6


def most_steps(score_mod: ScoreMod | None) -> int:
    """The largest `times` of its repeated steps; 0 where there are none."""
    found = [node.times for node in walk(score_mod) if isinstance(node, Repeated)]
    return max(found, default=0)


def with_steps(program: Program, fewer: int) -> Program:
    """The program with `fewer` steps less wherever it repeats as many as it does at most."""
    most, changed = most_steps(program.score_mod), program
    for path, _, node in located(program):
        if isinstance(node, Repeated) and node.times == most:
            inner = next(n for at, _, n in located(changed) if at == path)
            changed = put(changed, path, replace(inner, times=most - fewer))
    return changed
