"""The values of a graph: what their names and types are, and which extents there are.

Everything here holds for extents that are integers (a program's check) and for those that are
names, as "B" and "Lq" (a rendering for several calls), alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.render.devices import beside
from attnfuzz.generators.render.sizes import Size, product

NAMES = (
    "q", "k", "v", "q2", "k2", "v2", "query", "key", "value", "x", "y", "qkv", "kv", "mask",
    "mask2", "bias", "sink", "scale",
    "scores", "scores2", "probs", "probs2", "weights", "lse", "lse2", "out", "out2", "keys",
    "values", "residual", "gate", "hidden", "wq", "wk", "wv", "wo", "wqkv", "wkv", "w1", "w2",
    "norm1", "norm2", "cache_k", "cache_v",
)  # fmt: skip
"""What a value may be called: text from outside becomes no name in a source."""

ARGUMENTS = ("q", "k", "v")


def _known(name: str) -> str:
    if name not in NAMES:
        raise PydanticCustomError("name", f"expected one of {', '.join(NAMES)}")
    return name


Name = Annotated[str, AfterValidator(_known)]
Dim = Annotated[int, Field(ge=0, le=5)]
Extent = Literal["B", "Hq", "Hkv", "G", "Lq", "Lkv", "D", "Dv", "1", "2", "3"]
"""G is Hq / Hkv."""
FLOATS = ("float16", "bfloat16", "float32", "float64")


class Unfit(ValueError):
    """A step that does not fit the values that it is given: the `key` of the step that it is about,
    and what was expected there."""

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(f"{key}: {sentence}")
        self.key, self.sentence = key, sentence


@dataclass(frozen=True)
class Value:
    """The type of a tensor. `contiguous`: it is known to be. `of`: the arguments that it depends
    on, if their changes change it smoothly: those that it has a gradient for. `masked`: some of it
    may be minus infinity or the least number, as scores are where a mask hides them."""

    shape: tuple[Size, ...]
    dtype: str
    contiguous: bool = False
    of: frozenset[str] = frozenset()
    masked: bool = False

    @property
    def rank(self) -> int:
        """How many dimensions there are."""
        return len(self.shape)

    @property
    def floating(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.dtype in FLOATS

    def shaped(self, shape: tuple[Size, ...], contiguous: bool = False) -> Value:
        """The same with another shape."""
        return replace(self, shape=shape, contiguous=contiguous)


@dataclass(frozen=True)
class Scope:
    """The values there are at some place of a graph, by name, and how long each extent is.
    `decode`: how it is called for parts of a sequence, whose caches have Lmax slots. `device`: what
    the function makes will be there."""

    sizes: Mapping[str, Size]
    values: Mapping[str, Value] = field(default_factory=dict)
    decode: Decode | None = None
    device: str = "cpu"

    def get(self, name: str, key: str) -> Value:
        """The value of that name. Raises Unfit, about `key`, where there is none."""
        if name not in self.values:
            raise Unfit(key, f"expected the name of a value that is there, got {name}")
        return self.values[name]

    def tensor(self, name: str, key: str) -> Value:
        """As `get`, of floating-point numbers."""
        value = self.get(name, key)
        if not value.floating:
            raise Unfit(key, f"expected floating-point numbers, {name} has {value.dtype}")
        return value

    def size(self, extent: Extent) -> Size:
        """How long an extent is."""
        return int(extent) if extent.isdigit() else self.sizes[extent]

    def sizes_of(self, extents: tuple[Extent, ...]) -> Size:
        """The product of the extents."""
        return product(tuple(self.size(extent) for extent in extents))

    def like(self, name: str) -> str:
        """`, dtype=…, device=…` of what is made in the function to go with that value."""
        return f", dtype={name}.dtype" + beside(self.device, name)

    def with_values(self, values: Mapping[str, Value]) -> Scope:
        """The scope in which these values are there too, in place of others of their names."""
        return replace(self, values={**self.values, **values})


def same(a: Size, b: Size) -> bool:
    """Whether two extents are equal as far as can be told: of names, a check with the integers of
    every call has told it before."""
    return a == b or isinstance(a, str) or isinstance(b, str)


def broadcast(a: Value, b: Value, key: str) -> tuple[Size, ...]:
    """The shape that both are broadcast to. Raises Unfit, about `key`, where torch would not."""
    rank = max(a.rank, b.rank)
    left, right = ((1,) * (rank - v.rank) + v.shape for v in (a, b))
    shape: list[Size] = []
    for one, other in zip(left, right, strict=True):
        if one != 1 and other != 1 and not same(one, other):
            raise Unfit(key, f"expected shapes that broadcast, got {a.shape} and {b.shape}")
        shape.append(other if one == 1 else one)
    return tuple(shape)


def promoted(*values: Value) -> str:
    """The dtype that an operation on these gives (torch's type promotion of tensors with
    dimensions: the wider of two floats, float32 of float16 and bfloat16)."""
    found = {v.dtype for v in values if v.floating}
    if {"float16", "bfloat16"} <= found:
        found.add("float32")
    return max(found, key=FLOATS.index) if found else values[0].dtype


def depends(*values: Value) -> frozenset[str]:
    """The arguments that some of the values depend on."""
    return frozenset[str]().union(*(value.of for value in values))


def made_of(shape: tuple[Size, ...], dtype: str, *of: Value, contiguous: bool = False) -> Value:
    """The type of what is computed of all elements of these."""
    return Value(shape, dtype, contiguous, depends(*of), any(value.masked for value in of))


def dimension(value: Value, dim: int, key: str) -> Size:
    """How long dimension `dim` is. Raises Unfit, about `key`, where there is no such dimension."""
    if dim >= value.rank:
        raise Unfit(key, f"expected a dimension below {value.rank}, got {dim}")
    return value.shape[dim]
