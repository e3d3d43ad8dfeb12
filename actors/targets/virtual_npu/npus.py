"""The Ascend NPUs that a virtual target stands for.

Standard library only: zygotes and their children load this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Npu:
    """An Ascend NPU; `soc` is what CANN calls it."""

    name: str
    soc: str


NPUS = {"virtual-ascend910b": Npu(name="Ascend 910B1", soc="Ascend910B1")}
"""By the name of the virtual target for it."""
