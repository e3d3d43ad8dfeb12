"""Whole programs, of the kernels that a swarm's profile has."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.draws import Draw, allowed, weighted
from attnfuzz.generators.strategies.kernel import Parts, drawing_of
from attnfuzz.generators.strategies.modes import InModes
from attnfuzz.generators.strategies.swarm import EVERYTHING, PROFILES, Swarm


class Programs:
    """Programs with the features of a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        profile = PROFILES[swarm.profile]
        enabled = [kernel for kernel, _ in profile.kernels if swarm.has(f"kernel.{kernel}")]
        kernels = [(weight, kernel) for kernel, weight in profile.kernels]
        self.kernel = weighted(*(allowed(kernels, enabled) or kernels))
        self.backend = weighted(
            *((n, name) for name, n in profile.backends if name in swarm.place.backends)
        )
        parts = Parts.of(swarm)
        self.modes = InModes(swarm)
        self.drawings = {kernel: drawing_of(kernel, parts) for _, kernel in kernels}

    def draw(self, draw: Draw) -> Program:
        """A valid program of one of the swarm's kernels; its seed is 0."""
        kind = draw(self.kernel)
        backend = draw(self.backend)
        return self.modes.draw(draw, self.drawings[kind].draw(draw, backend))


@st.composite
def _programs(draw: DrawFn, parts: Programs) -> Program:
    return parts.draw(draw)


@lru_cache(maxsize=64)
def programs(swarm: Swarm = EVERYTHING) -> SearchStrategy[Program]:
    """Valid attention programs with the features of `swarm`, all of them by default. Their seed is
    0; set it with `dataclasses.replace` for other values."""
    return _programs(Programs(swarm))
