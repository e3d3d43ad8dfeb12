"""Programs written down as Python: the module that runs, and the reproduction of a failure."""

from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro

__all__ = ["repro", "source"]
