"""Where what is rendered makes its tensors."""

from __future__ import annotations

import re

_MADE = re.compile(r"(torch\.(?:arange|ones|zeros)\([^()]*)\)")
_CALLED = re.compile(r"\b(?:attention|compiled)[(,]")


def beside(device: str, name: str) -> str:
    """`, device=…` of what a function that runs on torch's `device` makes to go with the tensor of
    that name; nothing on a CPU."""
    return "" if device == "cpu" else f", device={name}.device"


def made_beside(name: str, lines: list[str], device: str) -> list[str]:
    """Statements of a reference, for where they run on `device`: what they make goes beside the
    tensor of that name."""
    there = beside(device, name)
    return [_MADE.sub(rf"\1{there})", line) for line in lines]


def off_default_device(lines: list[str], device: str) -> list[str]:
    """The statements of a script with the default device taken away around calls of the attention
    function: a default device is a mode, in which `torch.nn`'s modules leave their fast path."""
    found: list[str] = []
    for line in lines:
        if line.lstrip().startswith(("def ", "for ")) or not _CALLED.search(line):
            found.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        found += [f"{indent}torch.set_default_device(None)", line]
        found.append(f'{indent}torch.set_default_device("{device}")')
    return found
