"""How a graph is called where it decodes: the sequence in parts, with a cache between the calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT

MOST_CALLS = 12


@dataclass(frozen=True, kw_only=True)
class Decode:
    """The function is called for a part of the sequence at a time: for all but the last `calls` *
    `tokens` tokens first (the prefill, if there are any), then `calls` times for `tokens` each.
    What it returns is that of one causal pass over the whole.

    `position`: where a part begins is handed over as an integer, a 0-d tensor or one of one
    element, or the positions of all its tokens are (`arange`). `slots`: the caches are allocated
    for the whole sequence (`in_order`), used anew from the beginning where they are full (`ring`),
    made of pages that a table lists for each batch (`pages`), grow by `torch.cat` and are returned
    (`appended`), or are Python lists of each part's (`listed`). `writes`: slots are written in
    place, or by functions that give a new cache, which is returned (`functional`). `cache`: how
    dimensions lie in them. `spare`: slots more than are needed. `unwritten`: what is there before.
    `reads`: attention sees what is written, or all slots with a mask. `window`: how many positions
    a query sees, its own the last; None for all."""

    __pydantic_config__ = STRICT
    calls: Annotated[int, Field(ge=0, le=MOST_CALLS)] = 1
    tokens: Annotated[int, Field(ge=1, le=8)] = 1
    slots: Literal["in_order", "ring", "pages", "appended", "listed"] = "in_order"
    writes: Literal["in_place", "functional"] = "in_place"
    position: Literal["int", "tensor", "one_element", "arange"] = "int"
    cache: Literal["bhld", "blhd"] = "bhld"
    reads: Literal["written", "all"] = "written"
    unwritten: Literal["zeros", "normal", "nan"] = "zeros"
    spare: Annotated[int, Field(ge=0, le=64)] = 0
    window: Annotated[int, Field(ge=1, le=4096)] | None = None
    page: Literal[4, 2, 8] = 4

    def parts(self, length: int) -> tuple[tuple[int, int], ...]:
        """Where each call's part of a sequence begins and ends."""
        first = length - self.calls * self.tokens
        starts = range(first, length, self.tokens)
        later = tuple((start, start + self.tokens) for start in starts)
        return ((0, first), *later) if first > 0 else later

    def capacity(self, length: int) -> int:
        """How many slots a sequence has in a cache."""
        if self.slots == "ring":  # as many as all queries of a part see together
            longest = max((stop - start for start, stop in self.parts(length)), default=1)
            return (self.window or length) + longest - 1 + self.spare
        needed = length + self.spare
        return -(-needed // self.page) * self.page if self.slots == "pages" else needed

    @property
    def allocated(self) -> bool:
        """Whether there are slots for the whole sequence, or a window of it, from the beginning."""
        return self.slots in ("in_order", "ring", "pages")

    @property
    def gives_caches(self) -> bool:
        """Whether the caches are returned anew, for the next call."""
        return self.slots == "appended" or self.writes == "functional"

    @property
    def length_dim(self) -> int:
        """Which dimension of what is cached is the length."""
        return 2 if self.cache == "bhld" else 1
