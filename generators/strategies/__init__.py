"""Hypothesis strategies for attention programs and their parts, usable in any Hypothesis test.

All that they build is valid by construction (`model.validity`), and importing them does not
import torch.
"""

from attnfuzz.generators.strategies.inputs import layouts
from attnfuzz.generators.strategies.masks import masks
from attnfuzz.generators.strategies.programs import programs
from attnfuzz.generators.strategies.scores import score_mods
from attnfuzz.generators.strategies.shapes import shapes

__all__ = ["layouts", "masks", "programs", "score_mods", "shapes"]
