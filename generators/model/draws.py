"""A program's further draws: the same call with other numbers."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.generators.model.program import Program

SEEDS = 1 << 31


def drawn_seed(program: Program, draw: int) -> int:
    """The seed of the numbers of that draw, 0 for those that the program has anyway."""
    return (program.seed + draw) % SEEDS


def draw_alone(program: Program, draw: int) -> Program:
    """The program with the numbers of that draw, and without further ones."""
    return replace(program, seed=drawn_seed(program, draw), draws=0)
