"""A graph of steps, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.steps.rotary import Rotary
from attnfuzz.generators.kernels.graph.steps.state import CacheWrite
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.steps.union import AnyStep
from attnfuzz.generators.kernels.graph.values import Extent, Name
from attnfuzz.generators.model.indices import STRICT

MOST_STEPS = 120


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A further argument, of q's dtype, with a gradient where the program trains: its shape is the
    product of the extents in `rows` and that of those in `columns`; [] of none is 0-d. `values`:
    standard normal, divided by the root of the columns (`weight`), or 1/2 to 3/2 (`positive`)."""

    __pydantic_config__ = STRICT
    name: Name
    rows: tuple[Extent, ...] = ()
    columns: tuple[Extent, ...] = ()
    values: Literal["normal", "weight", "positive"] = "normal"


@dataclass(frozen=True, kw_only=True)
class Another:
    """A further argument like one of q, k and v in shape, layout and dtype, with other values."""

    __pydantic_config__ = STRICT
    name: Name
    like: Literal["q", "k", "v"]


@dataclass(frozen=True, kw_only=True)
class MaskForm:
    """How the program's mask is handed over, right-aligned with `[B, Hq, Lq, Lkv]`: True where a
    query sees a key (`bool`), 1 and 0 (`zero_one`), 0 and -inf or the least finite number
    (`additive`), or these with random numbers added where a key is seen (`biased`). `dtype`: of a
    float one, q's or float32. `rank`: how many dimensions it has at least. `padding`: `[B, Lkv]`,
    of a mask that depends on nothing else."""

    __pydantic_config__ = STRICT
    form: Literal["bool", "zero_one", "additive", "biased"] = "bool"
    fill: Literal["-inf", "finfo_min"] = "-inf"
    dtype: Literal["q", "float32"] = "q"
    rank: Literal[2, 4] = 4
    padding: bool = False


@dataclass(frozen=True, kw_only=True)
class Graph:
    """An attention function as steps: q, k, v and the further arguments in, what `returns` names
    out. `given`: q, k and v are handed over as `[B, H, L, D]`, `[B, L, H, D]`, merged to
    `[B, L, H * D]` or flat, `[B * H, L, D]`. `decode`: they are handed over part by part."""

    __pydantic_config__ = STRICT
    kind: Literal["graph"] = "graph"
    given: Literal["bhld", "blhd", "merged", "flat"] = "bhld"
    mask: MaskForm = MaskForm()
    parameters: Annotated[tuple[Parameter, ...], Field(max_length=12)] = ()
    others: Annotated[tuple[Another, ...], Field(max_length=4)] = ()
    steps: Annotated[tuple[AnyStep, ...], Field(min_length=1, max_length=MOST_STEPS)]
    returns: Annotated[tuple[Name, ...], Field(min_length=1, max_length=4)] = ("out",)
    decode: Decode | None = None

    @property
    def further(self) -> tuple[str, ...]:
        """The names of the further arguments, the mask aside."""
        return (*(other.name for other in self.others), *(each.name for each in self.parameters))

    @property
    def caches(self) -> tuple[str, ...]:
        """The names of the caches that its steps write, in the order of the arguments."""
        written = {step.cache for step in self.steps if isinstance(step, CacheWrite)}
        return tuple(sorted(written))

    @property
    def rotates(self) -> bool:
        """Whether it is given the frequencies of rotary embeddings."""
        return any(isinstance(step, Rotary) for step in self.steps)

    @property
    def body(self) -> tuple[Step, ...]:
        """The steps."""
        return self.steps

    def with_steps(self, steps: Iterable[Step]) -> Graph:
        """The graph with these steps."""
        every: Any = tuple(steps)
        return replace(self, steps=every)
