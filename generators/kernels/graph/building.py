"""Putting a graph together step by step, with the types of its values at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.kernels.graph.spec import (
    MOST_STEPS,
    Another,
    Graph,
    MaskForm,
    Parameter,
)
from attnfuzz.generators.kernels.graph.steps.arithmetic import Cast, Pointwise
from attnfuzz.generators.kernels.graph.steps.joins import Cat, Split, Stack
from attnfuzz.generators.kernels.graph.steps.rotary import Rotation
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.steps.views import (
    Contiguous,
    Flatten,
    Flip,
    Permute,
    Squeeze,
    Unflatten,
    Unsqueeze,
)
from attnfuzz.generators.kernels.graph.values import Extent, Scope, Unfit, Value
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.swarm import Swarm


class Forms:
    """How steps are written, for one swarm."""

    def __init__(self, swarm: Swarm) -> None:
        has = swarm.has
        self.exchange = weighted((4, "transpose"), (4, "permute"), (1, "swapaxes"), (1, "movedim"))
        self.last = weighted((3, "transpose"), (2, "permute"), (2, "mT"))
        self.moves = weighted((6, "permute"), (1, "movedim"))
        self.flatten = weighted((3, "flatten"), (3, "reshape"), (2, "copied"))
        self.unflatten = weighted((2, "unflatten"), (3, "view"), (1, "reshape"))
        self.unsqueeze = weighted((1, "unsqueeze"), (2, "none"))
        self.detour = one_in(6) if has("graph.detours") else st.just(False)
        self.decorated = one_in(9) if has("graph.detours") else st.just(False)
        self.decoration = weighted(
            (3, "contiguous"), (1, "clone"), (2, "moved"), (1, "squeezed"), (2, "flattened"),
            (2, "cat"), (1, "stack"), (1, "flipped"), (1, "plus_zero"), (1, "dropout"), (2, "cast"),
        )  # fmt: skip
        self.orders: dict[int, SearchStrategy[tuple[int, ...]]] = {
            rank: st.sampled_from(list(permutations(range(rank)))[1:]) for rank in (2, 3, 4, 5)
        }
        self.flag = st.booleans()
        self.backwards = weighted((2, "flip"), (2, "index"), (1, "index_select"))
        self.places = {rank: st.sampled_from(range(rank)) for rank in range(1, 6)}
        self.rotated = one_in(3) if has("graph.rotary") else st.just(False)
        self.rotation = weighted((2, "halves"), (2, "interleaved"), (1, "complex"))


@dataclass
class Builder:
    """A graph that grows. Steps are checked as they are added: `add` raises Unfit. Values in
    `fixed` are what they are."""

    draw: Draw
    forms: Forms
    scope: Scope
    dtype: str
    steps: list[Step] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    others: list[Another] = field(default_factory=list)
    arguments: Mapping[str, Value] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.arguments = self.scope.values

    def graph(self, given: str, mask: MaskForm, returns: tuple[str, ...]) -> Graph:
        """What has been put together."""
        return Graph(
            given=given,  # type: ignore[arg-type]
            mask=mask,
            parameters=tuple(self.parameters),
            others=tuple(self.others),
            steps=tuple(self.steps),  # type: ignore[arg-type]
            returns=returns,
        )

    @property
    def has_room(self) -> bool:
        """Whether there may be steps that change nothing: what is left to be written has to fit."""
        return len(self.steps) < MOST_STEPS // 3

    def value(self, name: str) -> Value:
        """The type of a value."""
        return self.scope.values[name]

    def add(self, *steps: Step) -> None:
        """Appends the steps. Raises Unfit where one does not fit."""
        for step in steps:
            pairs = zip(step.writes(), step.values(self.scope), strict=True)
            self.scope = self.scope.with_values(dict(pairs))
            self.steps.append(step)

    def parameter(self, parameter: Parameter) -> str:
        """A further argument; its name."""
        self.parameters.append(parameter)
        sizes = [self.scope.sizes_of(one) for one in (parameter.rows, parameter.columns) if one]
        self.give({parameter.name: Value(tuple(sizes), self.dtype, True)})
        return parameter.name

    def another(self, name: str, like: str, given: Value) -> str:
        """A further argument like q, k or v as they are `given`; its name."""
        self.others.append(Another(name=name, like=like))  # type: ignore[arg-type]
        self.give({name: given})
        return name

    def give(self, values: Mapping[str, Value]) -> None:
        """Values that are there without a step."""
        self.scope = self.scope.with_values(values)

    def rotation(self) -> Rotation | None:
        """How queries and keys are rotated by their positions, if they are."""
        if not self.draw(self.forms.rotated) or int(self.scope.sizes["D"]) % 2:
            return None
        return self.draw(self.forms.rotation)

    # Moving.

    def move(self, name: str, dims: tuple[int, ...], to: str | None = None) -> None:
        """The dimensions of a value in that order, in one step or two."""
        target, draw = to or name, self.draw
        if dims == tuple(range(len(dims))):
            return
        if len(dims) in self.forms.orders and draw(self.forms.detour) and self.has_room:
            first = draw(self.forms.orders[len(dims)])
            rest = tuple(first.index(dim) for dim in dims)
            if rest != tuple(range(len(dims))):
                self.add(self._permutation(name, target, first))
                name, dims = target, rest
        self.add(self._permutation(name, target, dims))

    def _permutation(self, name: str, to: str, dims: tuple[int, ...]) -> Permute:
        moved = [place for place, dim in enumerate(dims) if place != dim]
        forms = self.forms.moves
        if len(moved) == 2:
            last = moved == [len(dims) - 2, len(dims) - 1]
            forms = self.forms.last if last else self.forms.exchange
        return Permute(of=name, to=to, dims=dims, form=self.draw(forms))

    def exchange(self, name: str, one: int, other: int, to: str | None = None) -> None:
        """Two dimensions of a value in each other's place."""
        dims = list(range(self.value(name).rank))
        dims[one], dims[other] = dims[other], dims[one]
        self.move(name, tuple(dims), to)

    def flatten(self, name: str, first: int, last: int, to: str | None = None) -> None:
        """Dimensions of a value as one, perhaps a view of a copy."""
        form, target = self.draw(self.forms.flatten), to or name
        if form == "copied":
            self.add(Contiguous(of=name, to=target))
            name, form = target, "view"
        self.add(Flatten(of=name, to=target, first=first, last=last, form=form))

    def unflatten(self, name: str, dim: int, *parts: Extent, to: str | None = None) -> None:
        """A dimension of a value as several."""
        form = self.draw(self.forms.unflatten)
        self.add(Unflatten(of=name, to=to or name, dim=dim, parts=parts, form=form))

    def unsqueeze(self, name: str, dim: int, to: str | None = None) -> None:
        """A further dimension of extent 1."""
        form = self.draw(self.forms.unsqueeze)
        self.add(Unsqueeze(of=name, to=to or name, dim=dim, form=form))

    def arrange(self, name: str, given: str, heads: Extent, dim: Extent) -> None:
        """What is `given` as q is, as `[B, H, L, D]`."""
        match given:
            case "blhd":
                self.exchange(name, 1, 2)
            case "merged":
                self.unflatten(name, 2, heads, dim)
                self.exchange(name, 1, 2)
            case "flat":
                self.unflatten(name, 0, "B", heads)

    def hand_back(self, name: str, given: str) -> None:
        """`[B, H, L, D]` as it would be `given`."""
        match given:
            case "blhd":
                self.exchange(name, 1, 2)
            case "merged":
                self.exchange(name, 1, 2)
                self.flatten(name, 2, 3)
            case "flat":
                self.flatten(name, 0, 1)

    # What changes nothing.

    def decorate(self, name: str) -> None:
        """Now and then, steps after which the value is the same."""
        if name not in self.fixed and self.draw(self.forms.decorated) and self.has_room:
            before = self.scope, len(self.steps)
            try:
                self._decorate(name)
            except Unfit:
                self.scope = before[0]
                del self.steps[before[1] :]

    def _decorate(self, name: str) -> None:
        value, draw = self.value(name), self.draw
        match draw(self.forms.decoration):
            case "contiguous":
                self.add(Contiguous(of=name, to=name))
            case "clone":
                self.add(Contiguous(of=name, to=name, form="clone"))
            case "moved" if value.rank in self.forms.orders:
                dims = draw(self.forms.orders[value.rank])
                self.add(Permute(of=name, to=name, dims=dims))
                if draw(self.forms.flag):
                    self.add(Contiguous(of=name, to=name))
                back = tuple(dims.index(dim) for dim in range(value.rank))
                self.add(Permute(of=name, to=name, dims=back))
            case "squeezed":
                self.unsqueeze(name, 0)
                self.add(Squeeze(of=name, to=name, dim=0))
            case "flattened" if value.rank == 4 and isinstance(value.shape[1], int):
                heads: Extent = "Hq" if value.shape[1] == self.scope.sizes["Hq"] else "Hkv"
                self.flatten(name, 0, 1)
                self.unflatten(name, 0, "B", heads)
            case "cat" if value.floating and value.rank:
                self.add(Split(of=name, to=("x", "y"), dim=value.rank - 1, form="chunk"))
                self.add(Cat(of=("x", "y"), to=name, dim=value.rank - 1))
            case "stack" if value.rank and value.rank < 5:
                self.add(Stack(of=(name, name), to="x", dim=0))
                self.add(Split(of="x", to=(name, "y"), dim=0, form="unbind"))
            case "flipped" if value.rank in self.forms.places:
                dim, form = draw(self.forms.places[value.rank]), draw(self.forms.backwards)
                if isinstance(value.shape[dim], int):
                    for _ in range(2):
                        self.add(Flip(of=name, to=name, dim=dim, form=form))
            case "plus_zero" | "dropout" as function if value.floating:
                self.add(Pointwise(of=name, to=name, function=function))
            case "cast" if value.dtype in ("float16", "bfloat16"):
                self.add(Cast(of=name, to="x", dtype="float32"))
                self.add(Cast(of="x", to=name, like=name))
