"""What a check of a reproduction is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnfuzz.generators.render.parts import Block


@dataclass
class Check:
    """`statements` for each call, `last` for the failing one; `first` run before anything else,
    `functions` are defined before the inputs. `reference`, `run` and `compiled` say which of these
    the statements use. `in_place`: the statements are those of the attention function itself, and
    `before` those that have to stand in front of them."""

    statements: Block = field(default_factory=list)
    last: Block = field(default_factory=list)
    first: Block = field(default_factory=list)
    before: Block = field(default_factory=list)
    functions: list[Block] = field(default_factory=list)
    reference: bool = False
    run: bool = False
    compiled: bool = False
    inputs_only: bool = False
    in_place: bool = False
