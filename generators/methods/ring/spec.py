"""Ring attention, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class Ring:
    """Ring attention: each rank keeps its part of q, and the parts of k and v go round by
    point-to-point sends, one step at a time, while the results of the blocks are merged by their
    log-sum-exp; the backward pass sends the gradients of k and v round with them. `order`: how the
    sequence is dealt out: `contiguous` parts; `zigzag`, of which each rank has one from the front
    and its counterpart from the end; or `striped`, every n-th position. `ulysses`: so many
    neighbouring ranks exchange positions for heads first (see `Ulysses`), so that the ring has as
    many times fewer ranks, each of them some of the heads: two dimensions of the mesh.
    `return_lse`: the merged log-sum-exp is a result too, and has a gradient."""

    __pydantic_config__ = STRICT
    kind: Literal["ring"] = "ring"
    order: Literal["contiguous", "zigzag", "striped"] = "contiguous"
    ulysses: Annotated[int, Field(ge=1, le=8)] = 1
    return_lse: bool = False
