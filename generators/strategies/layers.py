"""An attention function applied in several layers, or compiled as a region of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.swarm import Swarm


class Layers:
    """How often a program's attention is applied, and whether it is a region."""

    def __init__(self, swarm: Swarm) -> None:
        several: Any = ((2, 2), (1, 3)) if swarm.has("surround.layers") else ()
        self._plain = weighted((30, 1), *several)
        self._of_region = weighted((2, 1), (3, 2), (1, 3))
        self._is_region = one_in(8) if swarm.has("surround.region") else st.just(False)

    def draw(self, draw: Draw, p: Program) -> Program:
        """The program with it, as far as that is valid."""
        region = p.compile is not None and draw(self._is_region)
        layers: Any = draw(self._of_region if region else self._plain)
        for times in (layers, 1):
            surround = replace(p.surround, layers=times, region=region)
            if surround != p.surround and not problems(replace(p, surround=surround)):
                return replace(p, surround=surround)
        return p
