"""A mask as a mask_mod that is put together of others: `and_masks`, `or_masks`, `noop_mask`."""

from __future__ import annotations

from dataclasses import dataclass

from attnfuzz.generators.model.masks import AllTrue, And, Mask, Or
from attnfuzz.generators.model.tree import class_of, kind_of
from attnfuzz.generators.render.captures import Captures, Extents
from attnfuzz.generators.render.expressions import ATOM, Expr, binary
from attnfuzz.generators.render.masks import boolean
from attnfuzz.generators.render.mods import Mod
from attnfuzz.generators.render.scene import Scene

NOOP = "noop_mask"


@dataclass(frozen=True)
class Joined(Mod):
    """`parts` put together; `template` is the expression for that, with a field for each part."""

    parts: tuple[Mod, ...] = ()
    template: str = NOOP

    @property
    def sizes(self) -> tuple[str, ...]:
        """Those of the names B, Lq and Lkv that a part contains."""
        return tuple(n for n in ("B", "Lq", "Lkv") if any(n in part.sizes for part in self.parts))

    @property
    def made(self) -> str:
        """The expression."""
        return self.template.format(*(part.made for part in self.parts))

    def on_indices(self, made: str, *first: str) -> str:
        """Its meaning in operators: a reference shall not use what is judged."""
        return self.expr.at(ATOM)

    @property
    def definition(self) -> list[str]:
        """The parts, one behind the other."""
        lines: list[str] = []
        for part in self.parts:
            if part.definition:
                lines += ["", "", *part.definition] if lines else part.definition
        return lines

    @property
    def is_function(self) -> bool:
        """Whether its name alone says it: never, but for what torch has itself."""
        return self.template == NOOP


def joined_mask_mod(mask: Mask, scene: Scene, extents: Extents, style: str) -> Mod:
    """The mask as a mask_mod, as `render.mods.mask_mod`, whose And and Or at the root are
    `and_masks` and `or_masks`."""
    captures = scene.captures(extents)
    parts: list[Mod] = []
    template, expr = _template(mask, captures, style, parts)
    tables = tuple(captures.captured)
    return Joined(
        "mask_mod", expr, tables, frozenset(captures.loops), style, tuple(parts), template
    )


def _template(mask: Mask, captures: Captures, style: str, parts: list[Mod]) -> tuple[str, Expr]:
    """The expression for a mask_mod, and what it means in operators."""
    if isinstance(mask, And | Or):
        word, op = ("and", "&") if isinstance(mask, And) else ("or", "|")
        left, a = _template(mask.left, captures, style, parts)
        right, b = _template(mask.right, captures, style, parts)
        return f"{word}_masks({left}, {right})", binary(a, op, b)
    if isinstance(mask, AllTrue):
        return NOOP, boolean(mask, captures)
    before, loops = len(captures.captured), set(captures.loops)
    style = "function" if style == "lambda" else style
    name = captures.name(f"{kind_of(class_of(mask))}_mask")
    expr = boolean(mask, captures)
    own = tuple(captures.captured[before:])
    parts.append(Mod(name, expr, own, frozenset(captures.loops - loops), style))
    return "{}", expr
