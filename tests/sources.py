"""Hand-written sources that follow the contract between a rendered program and the child."""

from __future__ import annotations

import textwrap

_SOURCE = """
import torch


def inputs():
    g = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 1, 4, 4, generator=g) for _ in range(3))


def reference(q, k, v):
    return torch.softmax(q @ k.mT * 0.5, -1) @ v


def attention(q, k, v):
{body}
    return reference(q, k, v)


def run(fn, args):
    return {{"out": fn(*args)}}
"""

_COMPILED = """

compiled = torch.compile(attention)
"""


def source(body: str = "pass", *, compiled: bool = False) -> str:
    """A program whose attention function runs `body` before it computes the right result."""
    text = _SOURCE.format(body=textwrap.indent(textwrap.dedent(body).strip(), "    "))
    return text + _COMPILED if compiled else text
