"""Where a kernel's scale comes from (`ScaleFrom`), and when it may be written as an integer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene

DIVIDED = ("div", "query_div")
"""Where attention by hand divides by the inverse of its scale."""


def scale_problems(program: Program) -> Iterator[Problem]:
    """What is wrong with where the scale of the program's kernel comes from."""
    kernel: Any = program.kernel
    if kernel.scale_from == "constant":
        return
    if kernel.scale is not None:
        yield Problem("kernel.scale", f"expected none: it is computed from {kernel.scale_from}")
    if kernel.scale_from == "q_len":
        for key, q_len, _ in lengths(program):
            if q_len == 0:
                yield Problem(f"{key}.q_len", "expected > 0: the scale is one over its root")


def whole_divisor(scale: float | None, head_dim: int) -> int | None:
    """What scores are divided by, 1 / scale or sqrt(D), where that is a whole number."""
    if scale is None:
        root = math.isqrt(head_dim)
        return root if root * root == head_dim else None
    if scale <= 0:
        return None
    divisor = 1.0 / scale
    return int(divisor) if divisor.is_integer() else None


def integer_problems(program: Program) -> Iterator[Problem]:
    """What is wrong with a scale that is an integer."""
    kernel: Any = program.kernel
    if kernel.scaling not in DIVIDED:
        yield Problem(
            "kernel.scale_as", "expected constant or tensor: only a divisor is an integer"
        )
    elif kernel.scale_from != "constant":
        yield Problem("kernel.scale_from", "expected constant: the scale is an integer")
    elif whole_divisor(kernel.scale, program.shape.head_dim) is None:
        yield Problem("kernel.scale_as", "expected constant or tensor: the divisor is not whole")


def has_scale(kernel: Any) -> bool:
    """Whether the kernel says its scale, by a number or by where it comes from."""
    return kernel.scale is not None or kernel.scale_from != "constant"


def scale_argument(scene: Scene, kernel: Any) -> list[str]:
    """The argument `scale=…` of a call, where there is one."""
    if not (has_scale(kernel) or scene.scale_varies):
        return []
    return [f"scale={scene.scale_text(kernel.scale, kernel.scale_from)}"]


def same_scale(program: Program) -> dict[str, Any]:
    """The arguments that give another kernel the scale of the program's."""
    kernel = program.kernel
    return {
        "scale": getattr(kernel, "scale", None),
        "scale_from": getattr(kernel, "scale_from", "constant"),
    }
