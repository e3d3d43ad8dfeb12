"""Whether a graph that is called for parts of a sequence means one causal pass over the whole.

That is so if what is returned for a token depends on that token and, through attention alone, on
those before it: every product with a cache is followed by a mask made of the positions and a
softmax over the slots, and by a product with the other cache. It is decided by the roles of the
values and where in their shapes Lq and Lkv, as names, are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from attnfuzz.generators.kernels.graph.steps import (
    arithmetic,
    attention,
    joins,
    rotary,
    state,
    views,
)
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import Scope, Unfit, Value
from attnfuzz.generators.render.sizes import Size

Role = Literal[
    "row", "keys", "scores", "masked", "probs", "bool_mask", "additive_mask", "zero_one_mask"
]
"""`row`: of each token by itself, or of none. `keys`: of each slot of a cache. `scores`: of a token
and a slot, `masked` where the token may not look there, `probs` after the softmax."""

LENGTHS: dict[Role, tuple[tuple[str, ...], ...]] = {
    "row": ((), ("Lq",)), "keys": (("Lkv",),), "scores": (("Lkv", "Lq"),),
    "masked": (("Lkv", "Lq"),), "probs": (("Lkv", "Lq"),), "bool_mask": (("Lkv", "Lq"),),
    "additive_mask": (("Lkv", "Lq"),), "zero_one_mask": (("Lkv", "Lq"),),
}  # fmt: skip
HIDES: Mapping[str, tuple[Role, ...]] = {
    "add": ("additive_mask",), "masked_fill": ("bool_mask",), "where": ("bool_mask",),
    "eq_zero": ("bool_mask", "zero_one_mask"),
}  # fmt: skip
"""What each form of `MaskScores` hides slots with."""

MOVING = (
    views.Permute, views.Flatten, views.Unflatten, views.Unsqueeze, views.Squeeze, views.Expand,
    views.Contiguous, views.Slice, views.Flip, joins.Split, joins.Cat, joins.Stack,
    arithmetic.Cast,
)  # fmt: skip
ATTENTION = "expected attention over a cache: scores, a mask of the positions, a softmax"


class Flow:
    """The roles of all values. `step` raises Unfit where the meaning would be another."""

    def __init__(self, scope: Scope) -> None:
        self.roles: dict[str, Role] = dict.fromkeys(scope.values, "row")
        self.rules: Mapping[type, Callable[[Any, Scope], Role]] = {
            arithmetic.Scale: self._pointwise, arithmetic.Pointwise: self._function,
            arithmetic.Norm: self._projected, arithmetic.Linear: self._projected,
            arithmetic.Binary: self._binary, attention.Merge: self._rows,
            attention.Product: self._product, attention.Einsum: self._product,
            rotary.Rotary: self._rotary,
            attention.MaskScores: self._mask, attention.Softmax: self._softmax,
            attention.LogSumExp: self._softmax, attention.Attend: self._attend,
            state.AttendWritten: self._attend, state.PositionMask: self._position_mask,
            **dict.fromkeys(state.WRITES, self._keys),
            **dict.fromkeys(MOVING, self._moved),
        }  # fmt: skip

    def step(self, step: Step, before: Scope, after: Scope) -> None:
        """Goes on by one step."""
        rule = self.rules.get(type(step))
        if rule is None:
            raise Unfit("kind", "expected another where the sequence comes in parts")
        role = rule(step, before)
        for name in step.writes():
            if lengths(after.values[name]) not in LENGTHS[role]:
                raise Unfit("kind", ATTENTION)
            self.roles[name] = role

    def _of(self, step: Step, *allowed: Role) -> Role:
        """The role of what it is about, which is one of these."""
        role = self.roles[step.reads()[0]]
        if role not in allowed:
            raise Unfit(step.operands[0], ATTENTION)
        return role

    def _moved(self, step: Any, scope: Scope) -> Role:
        names = step.reads()[:1] if isinstance(step, arithmetic.Cast) else step.reads()
        found = {self.roles[name] for name in names}
        if len(found) > 1:
            raise Unfit(step.operands[0], ATTENTION)
        if isinstance(step, views.Flip) and _is_length(scope.values[step.of].shape[step.dim]):
            raise Unfit("dim", "expected one that is not the length")
        return found.pop()

    def _pointwise(self, step: Step, scope: Scope) -> Role:
        return self._of(step, "row", "keys", "scores")

    def _function(self, step: arithmetic.Pointwise, scope: Scope) -> Role:
        if step.function in ("dropout", "plus_zero"):
            return self._of(step, "row", "keys", "scores", "masked", "probs")
        return self._pointwise(step, scope)

    def _projected(self, step: Step, scope: Scope) -> Role:
        value, *weights = (scope.values[name] for name in step.reads())
        if _is_length(value.shape[-1]) or any(lengths(weight) for weight in weights):
            raise Unfit(step.operands[0], "expected a last dimension that is not the length")
        return self._of(step, "row", "keys")

    def _rotary(self, step: rotary.Rotary, scope: Scope) -> Role:
        if not _is_length(scope.values[step.of].shape[step.dim]):
            raise Unfit("dim", "expected the length: the positions are those of the part")
        return self._of(step, "row")

    def _rows(self, step: Step, scope: Scope) -> Role:
        if {self.roles[name] for name in step.reads()} != {"row"}:
            raise Unfit(step.operands[0], ATTENTION)
        aligned(*(scope.values[name] for name in step.reads()))
        return "row"

    def _binary(self, step: arithmetic.Binary, scope: Scope) -> Role:
        left, right = scope.values[step.left], scope.values[step.right]
        roles = self.roles[step.left], self.roles[step.right]
        aligned(left, right)
        if roles == ("row", "row"):
            return "row"
        for role, other, value in ((*roles, right), (*roles[::-1], left)):
            if other == "row" and not lengths(value) and role in ("keys", "scores"):
                return role
        raise Unfit("right", ATTENTION)

    def _product(self, step: attention.Product | attention.Einsum, scope: Scope) -> Role:
        roles = {self.roles[step.left], self.roles[step.right]}
        if roles == {"row", "keys"}:
            return "scores"
        if roles == {"probs", "keys"}:
            return "row"
        raise Unfit("right", ATTENTION)

    def _mask(self, step: attention.MaskScores, scope: Scope) -> Role:
        self._of(step, "scores", "masked")
        if self.roles[step.mask] not in HIDES.get(step.form, ()):
            raise Unfit("mask", "expected one of the positions, of this form")
        aligned(scope.values[step.of], scope.values[step.mask])
        return "masked"

    def _softmax(self, step: attention.Softmax | attention.LogSumExp, scope: Scope) -> Role:
        self._of(step, "masked")
        dim = step.dim if isinstance(step, attention.Softmax) else -1
        if scope.values[step.of].shape[dim] != "Lkv":
            raise Unfit("of", "expected a softmax over the slots")
        return "probs" if isinstance(step, attention.Softmax) else "row"

    def _attend(self, step: attention.Attend | state.AttendWritten, scope: Scope) -> Role:
        roles = tuple(self.roles[name] for name in (step.q, step.k, step.v))
        if roles != ("row", "keys", "keys"):
            raise Unfit("k", "expected a query of the part, keys and values of a cache")
        places = [scope.values[name].shape[-2] for name in (step.q, step.k, step.v)]
        if places != ["Lq", "Lkv", "Lkv"]:
            raise Unfit("k", "expected the length in the last dimension but one")
        if isinstance(step, state.AttendWritten):
            return "row"
        if step.causal or step.mask is None:
            raise Unfit("mask", "expected one of the positions")
        mask = scope.values[step.mask].shape[-2:]
        if self.roles[step.mask] not in ("bool_mask", "additive_mask") or mask != ("Lq", "Lkv"):
            raise Unfit("mask", "expected one of the positions")
        return "row"

    def _position_mask(self, step: state.PositionMask, scope: Scope) -> Role:
        masks: dict[str, Role] = {
            "bool": "bool_mask", "additive": "additive_mask", "zero_one": "zero_one_mask",
        }  # fmt: skip
        return masks[step.form]

    def _keys(self, step: state.CacheWrite, scope: Scope) -> Role:
        assert scope.decode is not None
        place = scope.values[step.of].shape[scope.decode.length_dim]
        if self.roles[step.of] != "row" or place != "Lq":
            raise Unfit("of", "expected what belongs to the tokens of the part")
        return "keys"


def lengths(value: Value) -> tuple[str, ...]:
    """The dimensions of a value that depend on the lengths, in the order of their names."""
    return tuple(sorted(str(size) for size in value.shape if _is_length(size)))


def aligned(*values: Value) -> None:
    """Raises Unfit where a length of one would be broadcast to what is not that length."""
    rank = max(value.rank for value in values)
    shapes = [(1,) * (rank - value.rank) + value.shape for value in values]
    for sizes in zip(*shapes, strict=True):
        if len({size for size in sizes if size != 1}) > 1:
            raise Unfit("right", "expected the length in the same dimension")


def _is_length(size: Size) -> bool:
    return isinstance(size, str)
