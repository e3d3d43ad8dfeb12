"""Hypothesis strategies for attention programs and their parts, usable in any Hypothesis test.

All that they build is valid by construction (`generators.validity`), and importing them does not
import torch.
"""

from generators.strategies.inputs import layouts
from generators.strategies.masks import masks
from generators.strategies.programs import programs
from generators.strategies.scores import score_mods
from generators.strategies.shapes import shapes

__all__ = ["layouts", "masks", "programs", "score_mods", "shapes"]
