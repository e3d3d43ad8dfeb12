"""What a step between a BlockMask's creation and the call is, and where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attnfuzz.generators.model.indices import Axis
from attnfuzz.generators.render.captures import Extents

Block = tuple[int, int]


class Place(NamedTuple):
    """Where a step stands. `alone` are the axes along which the mask before it has one entry for
    all; `number` is 1 for the first step of its kind; index tensors are made on `device`."""

    before: Extents
    after: Extents
    block: Block
    alone: frozenset[Axis]
    number: int = 1
    device: str = "cpu"

    def name(self, base: str) -> str:
        """`base`, or `base2`, `base3`, … for further steps of its kind."""
        return base if self.number == 1 else f"{base}{self.number}"


class Written(NamedTuple):
    """The statements that make the new `block_mask` of the old one, and the functions, one after
    the other, that they call."""

    statements: list[str]
    functions: tuple[list[str], ...] = ()


class BaseStep:
    """What most steps have in common: they leave the extents and the meaning alone."""

    @property
    def crops(self) -> bool:
        """Whether it may leave out a part of a block."""
        return False

    @property
    def widens(self) -> bool:
        """Whether what it leaves depends on all that there is in a block."""
        return False

    @property
    def looks(self) -> bool:
        """Whether it looks at numbers, as what is compiled cannot."""
        return False

    @property
    def forgets(self) -> bool:
        """Whether it makes a BlockMask without the order of writes that there was."""
        return False

    def before(self, after: Extents, block: Block) -> Extents:
        """The extents that the mask has to have."""
        return after

    def alone(self) -> frozenset[Axis]:
        """The axes along which it leaves one entry for all."""
        return frozenset()

    def problems(self, place: Place) -> Iterator[tuple[str, str]]:
        """Fields and sentences: what it needs and is not so."""
        yield from ()

    def too_long(self, q_len: int, block: Block) -> bool:
        """Whether it leaves one block of queries, and `q_len` is more than that."""
        return False

    def write(self, place: Place) -> Written:
        """What it writes."""
        raise NotImplementedError

    def seen(self, place: Place) -> list[str]:
        """Statements for the dense `mask` that is seen, which use no BlockMask."""
        return []
