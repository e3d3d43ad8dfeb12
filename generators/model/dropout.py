"""What dropout needs of the rest of a program to be judged: see `generators.render.dropout`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program, Surround

SMALL_VALUES = ("normal", "tiny", "zeros", "ones")
MAX_SCALE = 4.0


def dropout_problems(p: Program) -> Iterator[Problem]:
    """q, k and v as they are given, small scores, and a result `[B, Hq, Lq, Dv]`."""
    plugin = plugin_of(p)
    if not plugin.dropout_p(p.kernel):
        return
    for key, wrong in (
        ("transform", p.transform != "none"),
        ("autocast", p.autocast is not None),
        ("mesh", p.mesh is not None),
        ("surround", replace(p.surround, checkpoint="none") != Surround()),
        ("surround.checkpoint", p.surround.checkpoint == "reentrant"),
        ("training.double", p.training is not None and p.training.double),
        ("kernel.out_layout", not plugin.keeps_layout(p.kernel)),
        ("kernel.scale", abs(getattr(p.kernel, "scale", None) or 0.0) > MAX_SCALE),
    ):
        if wrong:
            yield Problem(key, "expected the default with dropout")
    for name in ("q", "k", "v"):
        entry = getattr(p, name)
        if entry.values not in SMALL_VALUES:
            sentence = f"expected one of {', '.join(SMALL_VALUES)} with dropout"
            yield Problem(f"{name}.values", sentence)
        if entry.dtype != p.q.dtype:
            yield Problem(f"{name}.dtype", f"expected q's ({p.q.dtype}) with dropout")
