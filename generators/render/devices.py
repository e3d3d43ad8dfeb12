"""Where a rendered function makes its own tensors: on the device of what it is given."""

from __future__ import annotations


def beside(device: str, name: str) -> str:
    """`, device=…` of what a function that runs on torch's `device` makes to go with the tensor of
    that name; nothing on a CPU."""
    return "" if device == "cpu" else f", device={name}.device"
