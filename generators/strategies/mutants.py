"""Mutants: programs made of programs that were worth keeping.

A part of one program takes the place of the same part of another: a whole field, or a node of a
mask or score modification. The other is another kept program (crossover), or one drawn afresh
(mutation). Random choices follow from a seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import class_of, located, parts, put, walk
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import fitted
from attnfuzz.generators.strategies.programs import multiply_adds
from attnfuzz.generators.strategies.seeds import derive
from attnfuzz.generators.strategies.swarm import MAX_COST

TRIES = 40
"""Grafts that are tried for one mutant: most do not give a program."""

MOST_GRAFTS = 3

MOST_NODES = 40
"""Of an expression: grafting into what was grafted would let it grow for ever."""


def mutants(seed: int, parents: Sequence[Program], fresh: Sequence[Program]) -> list[Program]:
    """A program in the place of each of `fresh`: one of `parents` with parts of it, or of another
    parent. Where nothing fits, the fresh one. Raises ValueError without parents."""
    if not parents:
        raise ValueError("parents: expected one or more")
    return [
        replace(
            _mutant(Random(derive(seed, "mutant", place)), parents, other),
            seed=derive(seed, "program", place) & 0x7FFFFFFF,
        )
        for place, other in enumerate(fresh)
    ]


def _mutant(random: Random, parents: Sequence[Program], fresh: Program) -> Program:
    program = parent = _one(random, parents)
    donor = fresh if random.random() < 0.5 else _one(random, parents)
    left = 1 + int(random.random() * MOST_GRAFTS)
    for _ in range(TRIES):
        grafted = fitted(_graft(random, program, donor))
        if program_id(grafted) != program_id(program) and _fits(grafted):
            program, left = grafted, left - 1
        if not left:
            break
    return fresh if program is parent else program


def _one(random: Random, some: Sequence[Any]) -> Any:
    """`random.random` gives the same numbers in every version of Python."""
    return some[int(random.random() * len(some))]


def _graft(random: Random, program: Program, donor: Program) -> Program:
    """`program` with one part of `donor`."""
    if random.random() < 0.5:
        name = _one(random, [part.name for part in parts(Program) if part.name != "seed"])
        return replace(program, **{name: getattr(donor, name)})
    places = [one for one in located(program) if len(one[0]) > 1]
    if not places:
        return program
    path, classes, _ = _one(random, places)
    nodes = [node for node in walk(donor) if class_of(node) in classes]
    grafted: Program = put(program, path, _one(random, nodes)) if nodes else program
    return grafted


def _fits(program: Program) -> bool:
    expressions = [one for one in (program.mask, program.score_mod) if one is not None]
    if any(sum(1 for _ in walk(one)) > MOST_NODES for one in expressions):
        return False
    return not problems(program) and multiply_adds(program) <= MAX_COST
