"""The oracles that every execution goes through, in this order, unless its target has fewer.

`oracles.compile_time` is none of them: it compares whole programs, and the worker runs it.
"""

from __future__ import annotations

from attnfuzz.actors.oracles.determinism import Determinism
from attnfuzz.actors.oracles.gradients import Gradients
from attnfuzz.actors.oracles.hygiene import Hygiene
from attnfuzz.actors.oracles.metadata import AgainstEager, AgainstReference, LayoutAgainstEager
from attnfuzz.actors.oracles.metamorphic import BatchPermutation
from attnfuzz.actors.oracles.nan_propagation import NanPropagation
from attnfuzz.actors.oracles.numbers import Numbers
from attnfuzz.actors.oracles.oracle import Oracle
from attnfuzz.actors.oracles.purity import Purity
from attnfuzz.actors.oracles.replicas import Replicas

ORACLES: tuple[type[Oracle], ...] = (
    Purity,
    Hygiene,
    AgainstReference,
    AgainstEager,
    Gradients,
    Numbers,
    NanPropagation,
    LayoutAgainstEager,
    Determinism,
    BatchPermutation,
    Replicas,
)
