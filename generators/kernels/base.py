"""What a kernel's plug-in says: its inputs, how it is called, and what it means.

A new kernel is one file with an object `PLUGIN` that answers these three questions, a dataclass
in `specs`, and a line in the registry. Imports of torch's names are found in the text itself (see
`generators.render.imports`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from attnfuzz.generators.render.mods import Mod
from attnfuzz.generators.render.scene import Scene


@dataclass
class Inputs:
    """What a kernel needs beside q, k and v.

    `statements` make it in the body of `inputs`; `arguments` are the names handed on to the call,
    `learnable` those of them with a gradient, `floating` those that are float tensors. `mods` are
    defined at top level. `fresh` are the statements that make closures and BlockMasks,
    `fresh_names` what they make: a program that reuses these makes them once for each shape.
    `seen` are statements that set a bool `mask` for choosing where k may have NaN. `imports` are
    import statements that the text does not tell, `environment` variables that have to be set
    before them, and `set_up` statements after them.
    """

    statements: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    learnable: list[str] = field(default_factory=list)
    floating: list[str] = field(default_factory=list)
    mods: list[Mod] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    fresh_names: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    set_up: list[str] = field(default_factory=list)


@dataclass
class Body:
    """A call: context managers around it, statements before it, and the expressions it returns."""

    result: list[str]
    statements: list[str] = field(default_factory=list)
    contexts: list[str] = field(default_factory=list)


@dataclass
class Meaning:
    """softmax(modified(scale * q k^T)) v. `modify` are statements that change `scores`
    `[B, Hq, Lq, Lkv]`; `zero_dead_rows`: rows that are -inf throughout give 0, not NaN; `scale` is
    an expression, None for 1; `finish` is a template for the result with `{out}` and the dimensions
    `{heads}` and `{length}` of it. Scores are constants where the expression `replaced` is true."""

    scale: str | None
    modify: list[str] = field(default_factory=list)
    zero_dead_rows: bool = False
    finish: str = "{out}"
    replaced: str | None = None


WITHOUT_DEAD_ROWS = (
    'dead = (scores == float("-inf")).all(dim=-1, keepdim=True)',
    "probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)",
)
"""Statements for the probabilities where rows that are -inf throughout give 0."""


class KernelPlugin(Protocol):
    """How one kernel is written."""

    def inputs(self, scene: Scene) -> Inputs:
        """What it needs beside q, k and v."""
        ...

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        """The kernel called on q, k, v and its arguments."""
        ...

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        """The same as plain tensor operations."""
        ...

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        """The names of what it returns: `out`, or `out` and `lse`."""
        ...
