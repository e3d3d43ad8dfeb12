"""Attention heads over tensor-parallel ranks, written down."""

from __future__ import annotations

from attnfuzz.generators.methods.heads.spec import Heads
from attnfuzz.generators.methods.local import AroundKernel


class HeadsPlugin(AroundKernel[Heads]):
    """Nothing is sent between the ranks but the result."""

    spec_class = Heads
    shared = "heads"
    mask_placement = "Shard({dim})"


PLUGIN = HeadsPlugin()
