"""How the programs of a kernel are drawn: what a kernel's `drawing` module has to say of it.

The drawing of the kernel `x` is the class `Drawing` of `attnfuzz.generators.kernels.x.drawing`.
Kernels whose programs differ from others' in their arguments alone derive it from
`strategies.composed.Composed`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.draws import Draw
from attnfuzz.generators.strategies.expressions import Expressions
from attnfuzz.generators.strategies.inputs import Inputs
from attnfuzz.generators.strategies.masks import Masks
from attnfuzz.generators.strategies.running import Running
from attnfuzz.generators.strategies.scores import Scores
from attnfuzz.generators.strategies.shapes import Shapes
from attnfuzz.generators.strategies.swarm import Swarm

SCALES = (None,) * 14 + (1.0, 0.5, 0.125, 0.0, -1.0, 2.0, 0.1, 0.001)


def scales(swarm: Swarm) -> SearchStrategy[float | None]:
    """A kernel's scale, None for 1/sqrt(D)."""
    return st.sampled_from(SCALES if swarm.has("any.scale") else (None,))


def scales_above_0(swarm: Swarm) -> SearchStrategy[float | None]:
    """A kernel's scale, for systems: what fused SDPA makes of others is met without one."""
    return scales(swarm).filter(lambda scale: scale is None or scale > 0)


@dataclass(frozen=True)
class Parts:
    """What the parts of a program are drawn with, for one swarm."""

    swarm: Swarm
    shapes: Shapes
    inputs: Inputs
    masks: Masks
    scores: Scores
    running: Running

    @classmethod
    def of(cls, swarm: Swarm) -> Parts:
        """The parts with the features of `swarm`."""
        shapes, masks = Shapes(swarm), Masks(swarm, Expressions(swarm))
        return cls(
            swarm, shapes, Inputs(swarm), masks, Scores(swarm, masks), Running(swarm, shapes)
        )


class Drawing(ABC):
    """Draws the programs of one kernel, with the features of a swarm."""

    def __init__(self, parts: Parts) -> None:
        self.swarm, self.has = parts.swarm, parts.swarm.has
        self.shapes, self.inputs = parts.shapes, parts.inputs
        self.masks, self.scores, self.running = parts.masks, parts.scores, parts.running

    @abstractmethod
    def draw(self, draw: Draw, backend: str) -> Program:
        """A valid program, compiled with `backend` ("none": eager)."""


def drawing_of(kind: str, parts: Parts) -> Drawing:
    """The drawing of the kernel of that kind."""
    module = import_module(f"attnfuzz.generators.kernels.{kind}.drawing")
    drawing: Drawing = module.Drawing(parts)
    return drawing
