"""mask_mod and score_mod: functions, closures, partials, methods, callable objects."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attnfuzz.generators.model.indices import Axis
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.scores import ScoreMod
from attnfuzz.generators.render.captures import Captured, Captures, Extents
from attnfuzz.generators.render.expressions import Expr, method
from attnfuzz.generators.render.masks import boolean
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.scores import modified
from attnfuzz.generators.render.sizes import commas

INDICES: tuple[Axis, ...] = ("b", "h", "q_idx", "kv_idx")
GRIDS: dict[Axis, str] = {
    "b": "torch.arange({})[:, None, None, None]", "h": "torch.arange({})[:, None, None]",
    "q_idx": "torch.arange({})[:, None]", "kv_idx": "torch.arange({})",
}  # fmt: skip


@dataclass(frozen=True)
class Mod:
    """A mask_mod or score_mod. `captured` are its tables, `sizes` the extents that it names,
    `loops` the axes that are to be looped over where it is evaluated without vmap. `style` is
    `Flex.mods`; a partial of nothing is a plain function."""

    name: str
    expr: Expr
    captured: tuple[Captured, ...]
    loops: frozenset[Axis]
    style: str

    @property
    def sizes(self) -> tuple[str, ...]:
        """Those of the names B, Lq and Lkv that its expression contains."""
        return tuple(n for n in ("B", "Lq", "Lkv") if re.search(rf"\b{n}\b", self.expr.text))

    @property
    def holds(self) -> tuple[str, ...]:
        """The names that it needs beside its arguments."""
        return (*self.tables, *self.sizes)

    @property
    def is_function(self) -> bool:
        """Whether its name alone says it, with nothing to be made first."""
        return self.made == self.name

    @property
    def learnable(self) -> tuple[str, ...]:
        """The names of the tables that are learnable biases."""
        return tuple(c.name for c in self.captured if c.learnable)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that it captures."""
        return tuple(c.name for c in self.captured)

    @property
    def statements(self) -> list[str]:
        """What makes the tables."""
        return [c.statement for c in self.captured if c.statement]

    @property
    def made(self) -> str:
        """The mod itself, or what makes it."""
        held = ", ".join(self.holds)
        match self.style:
            case "method":
                return f"{self._class}({held}).{self.name}"
            case "callable":
                return f"{self._class}({held})"
            case "partial" if held:
                return f"functools.partial({self.name}_of, {held})"
            case "nested":
                return f"make_{self.name}({held})"
            case "lambda":
                return f"lambda {', '.join(self._arguments)}: {self.expr.text}"
        return f"make_{self.name}({held})" if held else self.name

    def on_indices(self, made: str, *first: str) -> str:
        """What it gives at the four indices, with the plain meaning of what torch would put
        together; `made` is the mod, `first` what it takes before them."""
        made = f"({made})" if made.startswith("lambda ") else made
        return f"{made}({', '.join([*first, *INDICES])})"

    @property
    def definition(self) -> list[str]:
        """The function, or what makes it: a factory or a class."""
        held = ", ".join(self.holds)
        match self.style:
            case "method" | "callable":
                return self._class_definition()
            case "partial" if held:
                return self._function(f"{self.name}_of", *self.holds)
            case "lambda":
                return []
        function = self._function(self.name)
        if self.style == "nested":
            inner = self._function("inner")
            call = f"    return inner({', '.join(self._arguments)})"
            function = [*inner, "", function[0], call]
        elif not held:
            return function
        return [
            f"def make_{self.name}({held}):",
            *("    " + line if line else line for line in function),
            "",
            f"    return {self.name}",
        ]

    @property
    def _arguments(self) -> list[str]:
        return [*(["score"] if self.name == "score_mod" else []), *INDICES]

    def _function(self, name: str, *before: str, text: str | None = None) -> list[str]:
        head = f"def {name}({', '.join([*before, *self._arguments])}):"
        return [head, f"    return {text or self.expr.text}"]

    @property
    def _class(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    def _class_definition(self) -> list[str]:
        """A class that holds the tables, with the mod as a method or `__call__`."""
        lines, text = [f"class {self._class}:"], self.expr.text
        if self.holds:
            targets = ", ".join(f"self.{name}" for name in self.holds)
            lines += [
                f"    def __init__(self, {', '.join(self.holds)}):",
                f"        {targets} = {', '.join(self.holds)}",
                "",
            ]
            text = re.sub(rf"(?<![\w.])({'|'.join(self.holds)})\b", r"self.\1", text)
        name = "__call__" if self.style == "callable" else self.name
        return [*lines, *("    " + line for line in self._function(name, "self", text=text))]


def mask_mod(mask: Mask, scene: Scene, extents: Extents, style: str) -> Mod:
    """The mask as a mask_mod whose tables cover `extents`; `style` is as `Flex.mods`."""
    captures = scene.captures(extents)
    return _mod("mask_mod", boolean(mask, captures), captures, style)


def score_mod(score: ScoreMod, scene: Scene, style: str, extents: Extents | None = None) -> Mod:
    """The score modification as a score_mod whose tables cover `extents`, the scene's by default;
    `style` is as `Flex.mods`."""
    captures = scene.captures(extents)
    expr = modified(score, captures)
    if not expr.scored and _PRECISION[_dtype(captures)] < _PRECISION[scene.program.q.dtype]:
        expr = method(expr, "to", "score.dtype", kind="float")
    return _mod("score_mod", expr, captures, style)


_PRECISION = {"bfloat16": 0, "float16": 1, "float32": 2, "float64": 3}


def _dtype(captures: Captures) -> str:
    """The least precise dtype that a result without the score in it may have: the softmax is then
    computed in that dtype."""
    return min((*captures.float_dtypes, "float32"), key=lambda dtype: _PRECISION[dtype])


def _mod(name: str, expr: Expr, captures: Captures, style: str) -> Mod:
    return Mod(name, expr, tuple(captures.captured), frozenset(captures.loops), style)


def grids(axes: tuple[Axis, ...], extents: Extents) -> list[str]:
    """Statements that make the axes' index grids, which broadcast to `[B, H, Lq, Lkv]`."""
    return [f"{axis} = {GRIDS[axis].format(extents.of(axis))}" for axis in axes]


def compact_grids(lines: list[str]) -> list[str]:
    """`lines` with the four statements of `grids` as one: slower on long sequences, but short."""
    places = [i for i, line in enumerate(lines) if line.split(" = ")[0] in INDICES]
    if len(places) != len(INDICES):
        return lines
    sizes = [lines[i].split("(")[1].split(")")[0] for i in places]
    grid = f'torch.meshgrid(*map(torch.arange, ({", ".join(sizes)})), indexing="ij")'
    first = f"{', '.join(INDICES)} = {grid}"
    kept = [line for i, line in enumerate(lines) if i not in places]
    return [*kept[: places[0]], first, *kept[places[0] :]]


def on_grids(mod: Mod, made: str, name: str, extents: Extents) -> list[str]:
    """Statements that set `name` (mask or scores) to what the mod (`made`) gives everywhere.

    Chained lookups such as `table[b][q_idx]` mean what they say for a 0-d b only, so there the
    axes before the last are looped over.
    """
    loops = [axis for axis in INDICES if axis in mod.loops]
    lines = grids(tuple(axis for axis in INDICES if axis not in loops), extents)
    if not loops:
        first = [name] if mod.name == "score_mod" else []
        return [*lines, f"{name} = {mod.on_indices(made, *first)}"]
    if mod.name == "score_mod":
        here = f"{name}[{_slices(loops)}]"
        value = f"{mod.on_indices(made, here)}.expand_as({here})"
    else:
        shape = tuple(1 if axis in loops else extents.of(axis) for axis in INDICES)
        value = f"{mod.on_indices(made)}.expand({commas(shape)})"
    for axis in reversed(loops):
        dim = INDICES.index(axis) - 4
        value = f"torch.cat([{value} for {axis} in torch.arange({extents.of(axis)})], dim={dim})"
    return [*lines, f"{name} = {value}"]


def _slices(loops: list[Axis]) -> str:
    """An index that keeps one entry of each looped axis as a dimension of extent 1."""
    return "..., " + ", ".join(f"{a} : {a} + 1" if a in loops else ":" for a in INDICES)
