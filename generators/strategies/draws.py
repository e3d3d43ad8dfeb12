"""How strategies are written here: weighted choices, drawn through Hypothesis's `draw`.

Everything is drawn from `sampled_from` over prepared values: one cheap draw each, uniform, and
shrinking towards the first. Strategies are made once per swarm and kept, not per draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


class Draw(Protocol):
    """Hypothesis's `draw`, as `st.composite` hands it over."""

    def __call__(self, strategy: SearchStrategy[T], /) -> T: ...


def weighted(*choices: tuple[int, Any]) -> SearchStrategy[Any]:
    """One of the values, with probability proportional to its weight; the first is the simplest."""
    return st.sampled_from([value for weight, value in choices for _ in range(weight)])


def allowed(choices: Iterable[tuple[int, T]], wanted: Iterable[T]) -> list[tuple[int, T]]:
    """The weighted choices that are also among `wanted`."""
    kept = tuple(wanted)
    return [(weight, value) for weight, value in choices if value in kept]


@cache
def one_in(n: int) -> SearchStrategy[bool]:
    """True with probability 1/n."""
    return st.sampled_from([False] * (n - 1) + [True])
