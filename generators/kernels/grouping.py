"""Grouped queries, for which some kernels need an argument."""

from __future__ import annotations

from attnfuzz.generators.model.program import Program


def is_grouped(program: Program) -> bool:
    """Whether several query heads share a key head: Hq differs from Hkv."""
    return program.shape.q_heads != program.shape.kv_heads
