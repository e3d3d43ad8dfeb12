"""What a step of a graph is.

A step is data, and says itself what it reads and gives, how it is written, and what it means in
plain operations. A further one is a class in a module beside this one, and an entry in
`steps.union`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from attnfuzz.generators.kernels.graph.values import Scope, Value
from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Step:
    """One statement or two of a graph. `operands` are the fields that name what it reads, `targets`
    those that name what it gives: a value that has the name already is there no longer."""

    __pydantic_config__ = STRICT
    operands: ClassVar[tuple[str, ...]] = ("of",)
    targets: ClassVar[tuple[str, ...]] = ("to",)

    def reads(self) -> tuple[str, ...]:
        """The names of the values that it reads."""
        return tuple(name for key in self.operands for name in _names(getattr(self, key)))

    def writes(self) -> tuple[str, ...]:
        """The names of the values that it gives."""
        return tuple(name for key in self.targets for name in _names(getattr(self, key)))

    def values(self, scope: Scope) -> tuple[Value, ...]:
        """The types of what it gives, in the order of `writes`. Raises Unfit where what it reads
        does not fit it."""
        raise NotImplementedError

    def text(self, scope: Scope) -> list[str]:
        """Its statements, where it fits."""
        raise NotImplementedError

    def plain(self, scope: Scope) -> list[str]:
        """The same in plain operations of whatever dtype its arguments have: as it is written,
        unless that rounds or is one of the functions under test."""
        return self.text(scope)

    def without(self, names: frozenset[str]) -> Step | None:
        """The step where the values of these names are not there: None if it makes no sense."""
        return None


def _names(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
