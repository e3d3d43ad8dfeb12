"""What a mod captures, computed in the attention function."""

from __future__ import annotations

from attnfuzz.generators.render.captures import NUMBER
from attnfuzz.generators.render.mods import Mod

WRAPS = 8192
"""More than any number that an argument may have (`model.program.Value`)."""


def computed(mod: Mod) -> list[str]:
    """Statements that have the attention function compute what a mod captures, which leave its
    value as it is: tables, and an integer argument, as a position in a ring buffer is computed.
    Inductor drops the sum with 0 and the product with 1 from torch 2.14 on."""
    lines = []
    for one in mod.captured:
        sign = "~" if one.kind == "bool" else "-"
        is_tensor = one.name != NUMBER or bool(one.statement)
        value = f"{sign}({sign}{one.name})" if is_tensor else f"{NUMBER} % {WRAPS}"
        lines.append(f"{one.name} = {value}")
    return lines
