"""Programs written down as Python: the module that runs, and the reproduction of a failure."""

from generators.render.module import source
from generators.render.repro import repro

__all__ = ["repro", "source"]
