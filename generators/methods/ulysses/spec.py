"""Ulysses, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Ulysses:
    """Sequence parallelism by all-to-all (DeepSpeed-Ulysses): each rank exchanges its part of the
    sequence of all heads for the whole sequence of some heads, computes these, and exchanges the
    result back. `by`: DTensor's redistribution from `Shard(2)` to `Shard(1)`, or
    `all_to_all_single_autograd` of the functional collectives."""

    __pydantic_config__ = STRICT
    kind: Literal["ulysses"] = "ulysses"
    by: Literal["dtensor", "collective"] = "dtensor"
