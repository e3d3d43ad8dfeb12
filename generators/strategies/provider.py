"""Where generation gets its random choices from: a Hypothesis back-end that a seed fully decides.

Hypothesis's own provider mixes in constants that it finds in the source of the local modules loaded
so far, for about one draw in twenty, so that what a seed gives depends on what else is imported.
This one draws uniformly and from the seeded generator alone. With a back-end of its own, Hypothesis
also draws every example afresh: no novel prefixes, no mutation of earlier examples, nothing that
depends on labels (which contain `hash()`) or on time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.strategies import DrawFn, SearchStrategy
from hypothesis.strategies._internal.lazy import unwrap_strategies
from hypothesis.strategies._internal.misc import JustStrategy
from hypothesis.strategies._internal.strategies import SampledFromStrategy

from attnfuzz.generators.strategies.draws import Draw

T = TypeVar("T")

BACKEND = "attnfuzz"


class SeededProvider(HypothesisProvider):
    """Uniform integers and no constants. Only `Random.random` is used: it gives the same numbers in
    every version of Python."""

    def _maybe_draw_constant(self, *args: Any, **kwargs: Any) -> None:
        return None

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """An integer between the bounds, which are both among the values.

        Raises NotImplementedError where a bound is missing or weights are given."""
        random: Random | None = self._random
        if random is None or min_value is None or max_value is None or weights is not None:
            raise NotImplementedError("the strategies of programs draw bounded integers only")
        return min_value + int(random.random() * (max_value - min_value + 1))


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.{SeededProvider.__name__}"


def without_spans(draw: DrawFn) -> Draw:
    """`draw`, a third faster where it draws values of `sampled_from` or `just` as they are: the
    same choice, without the span that Hypothesis notes around each for shrinking by whole values.
    """
    data = getattr(draw, "__self__", None)
    if not isinstance(data, ConjectureData):
        raise TypeError(f"expected the draw of Hypothesis's data, got {draw!r}")
    choose = data.draw_integer

    def drawn(strategy: SearchStrategy[T]) -> T:
        chosen = unwrap_strategies(strategy)
        kind = type(chosen)
        if kind not in (SampledFromStrategy, JustStrategy) or chosen._transformations:
            return draw(strategy)
        elements = chosen.elements
        value: T = elements[0 if kind is JustStrategy else choose(0, len(elements) - 1)]
        return value

    return drawn


def collect(strategy: SearchStrategy[T], number: int, count: int) -> list[T]:
    """Exactly `count` values of `strategy`, decided by the integer `number` alone.

    Hypothesis always tries the simplest value first; it is left out, so that the values of many
    small collections do not all begin alike. Values may repeat where there are few of them.
    """
    values: list[T] = []
    while len(values) < count:
        values += _one_run(strategy, number + len(values), count - len(values))
    return values[:count]


def _one_run(strategy: SearchStrategy[T], number: int, count: int) -> list[T]:
    values: list[T] = []

    @seed(number)
    @settings(
        phases=[Phase.generate],
        database=None,
        max_examples=count + 1,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=False,
        verbosity=Verbosity.quiet,
        backend=BACKEND,
    )
    @given(strategy)
    def keep(value: T) -> None:
        values.append(value)

    run: Callable[[], None] = keep
    run()
    if len(values) < 2:
        raise RuntimeError("Hypothesis gave no values")
    return values[1:]
