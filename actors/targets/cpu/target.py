"""The CPU, which runs every kind of program."""

from __future__ import annotations

import os

from attnfuzz.actors.targets.target import Probe, Target, missing_compiler


class CpuTarget(Target):
    """The CPU as Inductor compiles for it, with the machine's C++ compiler."""

    def _missing(self, probe: Probe) -> str | None:
        return missing_compiler("Inductor needs")

    def _found(self, probe: Probe) -> str:
        return f"torch {probe['torch']} with {os.environ.get('CXX', 'g++')}"


TARGETS = (CpuTarget("cpu", "cpu", costs_known=True),)
