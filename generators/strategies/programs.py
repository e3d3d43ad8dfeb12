"""Whole programs, of the kernels that a swarm's profile has."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.changing import Changing
from attnfuzz.generators.strategies.draws import Draw, allowed, weighted
from attnfuzz.generators.strategies.kernel import Parts, drawing_of
from attnfuzz.generators.strategies.modes import InModes
from attnfuzz.generators.strategies.parallel import Parallel
from attnfuzz.generators.strategies.provider import without_spans
from attnfuzz.generators.strategies.swarm import EVERYTHING, MAX_COST, PROFILES, Swarm

MAX_DRAWN = MAX_COST // 4
"""Multiply-adds of all further draws of a program: a quarter of a second."""


def multiply_adds(program: Program) -> int:
    """What the last call's attention costs."""
    shape = program.shape
    last = program.calls[-1] if program.calls else shape
    width = shape.head_dim + (shape.v_head_dim or shape.head_dim)
    return last.batch * shape.q_heads * last.q_len * last.kv_len * width


class Programs:
    """Programs with the features of a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        profile = PROFILES[swarm.profile]
        enabled = [kernel for kernel, _ in profile.kernels if swarm.has_kernel(kernel)]
        kernels = [(weight, kernel) for kernel, weight in profile.kernels]
        self.kernel = weighted(*(allowed(kernels, enabled) or kernels))
        self.backend = weighted(
            *((n, name) for name, n in profile.backends if name in swarm.place.backends)
        )
        self.redraws = swarm.place.redraws
        self.draws = weighted((1, 0), (3, 2), (1, 3), (1, 4))
        parts = Parts.of(swarm)
        self.parallel = Parallel(swarm) if profile.ranks == "methods" else None
        self.modes = InModes(swarm)
        self.changing = Changing(swarm)
        self.drawings = {kernel: drawing_of(kernel, parts) for _, kernel in kernels}

    def draw(self, draw: Draw) -> Program:
        """A valid program of one of the swarm's kernels; its seed is 0."""
        if self.parallel is not None:
            return self.parallel.draw(draw, draw(self.backend))
        kind = draw(self.kernel)
        backend = draw(self.backend)
        program = self.modes.draw(draw, self.drawings[kind].draw(draw, backend))
        if program.compile is None or plugin_of(program).package is not None:
            return program
        program = self.changing.scaled_by_size(draw, program)
        if not self.redraws:
            return program
        affordable = MAX_DRAWN // max(1, multiply_adds(program))
        program = replace(program, draws=min(draw(self.draws), affordable))
        return self.changing.draw(draw, program)


@st.composite
def _programs(draw: DrawFn, parts: Programs) -> Program:
    return parts.draw(without_spans(draw))


@lru_cache(maxsize=64)
def programs(swarm: Swarm = EVERYTHING) -> SearchStrategy[Program]:
    """Valid attention programs with the features of `swarm`, all of them by default. Their seed is
    0; set it with `dataclasses.replace` for other values."""
    return _programs(Programs(swarm))
