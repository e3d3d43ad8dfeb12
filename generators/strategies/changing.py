"""Arguments that are others in each call: a scale, a captured number, tensors written in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.indices import Index, IntArgument, IntBinary
from attnfuzz.generators.model.masks import And, Causal, Compare, Mask, Or
from attnfuzz.generators.model.program import Argument, Program
from attnfuzz.generators.model.scores import FloatBinary, FromIndex, Score, ScoreMod
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.swarm import Swarm

Q, KV, NUMBER = Index(axis="q_idx"), Index(axis="kv_idx"), IntArgument()
BACK = IntBinary(op="-", left=Q, right=KV)
MASKS: tuple[Mask, ...] = (
    And(left=Causal(), right=Compare(op="<=", left=BACK, right=NUMBER)),  # a window
    Compare(op="<", left=KV, right=NUMBER),  # keys that are there
    Compare(op=">=", left=IntBinary(op="+", left=Q, right=NUMBER), right=KV),  # a causal offset
    Or(left=Compare(op="<", left=KV, right=NUMBER), right=Causal()),  # a prefix
)
SCORES: tuple[ScoreMod, ...] = (
    FloatBinary(op="*", left=Score(), right=FromIndex(index=NUMBER)),
    FloatBinary(op="+", left=Score(), right=FromIndex(index=NUMBER)),
    FloatBinary(
        op="-", left=Score(), right=FromIndex(index=IntBinary(op="*", left=BACK, right=NUMBER))
    ),
)
SCALES = (0.25, 0.5, 1.0, 2.0, 3.0, 0.1, 0.125)
NUMBERS = (8.0, 4.0, 2.0, 1.0, 0.0, 3.0, 5.0, 16.0, 17.0, 40.0)


class Changing:
    """Adds what the features of a swarm allow, mostly to compiled programs: what is compiled for
    the first call may serve another."""

    def __init__(self, swarm: Swarm) -> None:
        def seldom(feature: str, n: int) -> Any:
            there = swarm.has(feature) and swarm.place.redraws
            return one_in(swarm.rarity(n)) if there else st.just(False)

        self.scaled, self.numbered = seldom("calls.scale", 14), seldom("calls.number", 10)
        self.in_place = seldom("draws.in_place", 10)
        computed = swarm.has("calls.scale")
        self.computed = {
            changes: one_in(n) if computed else st.just(False)
            for changes, n in ((True, 6), (False, 24))
        }
        self.size: Any = weighted((1, "head_dim"), (2, "q_len"))
        self.scales, self.numbers = st.sampled_from(SCALES), st.sampled_from(NUMBERS)
        self.count = weighted((3, 2), (2, 3), (1, 5))
        self.scale_given: Any = weighted((3, "float"), (1, "int"), (2, "tensor"))
        self.number_given: Any = weighted((3, "int"), (1, "tensor"))
        self.mask, self.score = st.sampled_from(MASKS), st.sampled_from(SCORES)
        self.wrapped = one_in(3) if swarm.has("flex.computed") else st.just(False)
        self.alone, self.scores = st.booleans(), one_in(3)

    def draw(self, draw: Draw, p: Program) -> Program:
        """The program, or one with a changing argument, or with draws that are written in place."""
        if p.compile is None:
            return p
        if draw(self.in_place):
            p = _fitting(p, replace(p, in_place=True, calls=(), draws=max(1, p.draws)))
        if draw(self.scaled):
            given = draw(self.scale_given)
            values = self._values(draw, self.scales)
            if given == "int":
                values = tuple(float(1 + place) for place in range(len(values)))
            argument = Argument(what="scale", values=values, given=given)
            return _fitting(p, _called_plainly(replace(p, argument=argument)))
        if draw(self.numbered):
            given = draw(self.number_given)
            values = self._values(draw, self.numbers)
            argument = Argument(what="number", values=values, given=given)
            return self._captured(draw, p, argument)
        return p

    def scaled_by_size(self, draw: Draw, p: Program) -> Program:
        """The compiled program, or one that computes its scale, more often where sizes change."""
        compiled = p.compile
        changes = bool(p.calls) or (compiled is not None and compiled.dynamic is True)
        if not draw(self.computed[changes]):
            return p
        size, kernel = draw(self.size), p.kernel
        if not plugin_of(p).computes_scale:
            return p
        computed: Any = replace(kernel, **{"scale": None, "scale_from": size})
        return _fitting(p, replace(p, kernel=computed))

    def _values(self, draw: Draw, one: Any) -> tuple[float, ...]:
        drawn = dict.fromkeys(draw(one) for _ in range(draw(self.count)))
        return tuple(drawn) if len(drawn) > 1 else (*drawn, next(iter(drawn)) + 1.0)

    def _captured(self, draw: Draw, p: Program, argument: Argument) -> Program:
        if plugin_of(p).takes_score_mod and draw(self.scores):
            changed = replace(p, score_mod=draw(self.score))
        else:
            mask = draw(self.mask)
            if p.mask is not None and not draw(self.alone):
                mask = And(left=p.mask, right=mask)
            changed = replace(p, mask=mask)
        if draw(self.wrapped):
            scored = changed.score_mod is not None
            kernel = plugin_of(changed).with_computed(changed.kernel, scored)
            changed = replace(changed, kernel=kernel)
        changed = _called_plainly(replace(changed, argument=argument))
        return _fitting(p, plugin_of(changed).fitted(changed))


def _called_plainly(p: Program) -> Program:
    """The program called as it is, with mods that are made anew."""
    compiled = p.compile
    if compiled is not None and compiled.via not in ("compile", "module"):
        compiled = replace(compiled, via="compile")
    calls = tuple(replace(call, fresh_mods=True) for call in p.calls)
    return replace(p, calls=calls, compile=compiled)


def _fitting(p: Program, changed: Program) -> Program:
    """The changed program, unless it is none."""
    return p if problems(changed) else changed
