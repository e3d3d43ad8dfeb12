"""Whether this machine has a GPU, without asking its driver."""

from __future__ import annotations

from pathlib import Path

DRIVERS = ("/dev/nvidia0", "/dev/kfd")
"""NVIDIA's and AMD's."""


def gpu_is_there() -> bool:
    """Whether some driver has one."""
    return any(Path(driver).exists() for driver in DRIVERS)
