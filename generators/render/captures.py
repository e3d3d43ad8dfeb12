"""The tensors that a mod captures: their names, and the statements that make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from attnfuzz.generators.model.indices import Axis, Table
from attnfuzz.generators.render.expressions import Expr, Kind
from attnfuzz.generators.render.sizes import Size, commas, product, tuple_of

NUMBER = "number"
FLOATS = ("float32", "float16", "bfloat16", "float64")


class Extents(NamedTuple):
    """What each axis is as long as, where a mod is evaluated."""

    b: Size
    h: Size
    q_idx: Size
    kv_idx: Size

    def of(self, axis: Axis) -> Size:
        """How long `axis` is."""
        return {"b": self.b, "h": self.h, "q_idx": self.q_idx, "kv_idx": self.kv_idx}[axis]


class Captured(NamedTuple):
    """One captured tensor, the statement that makes it, whether it is a learnable bias, and what it
    holds. The second of a pair has no statement of its own."""

    name: str
    statement: str
    learnable: bool = False
    kind: Kind = "int"


@dataclass
class Captures:
    """Collects what an expression captures while it is rendered.

    `extents` are those the mod is evaluated at (a BlockMask may be built for more than the call),
    `kv_len` the call's own. `chains` says whether lookups may be chained, which means something
    on 0-d indices only. `loops` collects the axes that a chained lookup indexes with before its
    last step, `float_dtypes` those of the float tables. `times` is a name for how often a repeated
    step is done, where that is to be told by the script. `argument_is_tensor`: the number that is
    another in each call is captured as a tensor.
    """

    extents: Extents
    kv_len: Size
    chains: bool = True
    times: str = ""
    argument_is_tensor: bool = False
    taken: set[str] = field(default_factory=set)
    captured: list[Captured] = field(default_factory=list)
    loops: set[Axis] = field(default_factory=set)
    float_dtypes: list[str] = field(default_factory=list)

    def name(self, base: str) -> str:
        """`base`, or `base2`, `base3`, … where that is taken."""
        name, n = base, 2
        while name in self.taken:
            name, n = f"{base}{n}", n + 1
        self.taken.add(name)
        return name

    def add(
        self,
        base: str,
        value: str,
        *,
        learnable: bool = False,
        kind: Kind = "int",
        dtype: str | None = None,
    ) -> str:
        """Capture `value` (an expression) under a name like `base`; `dtype` that of floats."""
        name = self.name(base)
        if dtype is not None:
            self.float_dtypes.append(dtype)
            kind = "float"
        self.captured.append(Captured(name, f"{name} = {value}", learnable, kind))
        return name

    def pair(self, first: str, second: str, value: str) -> tuple[str, str]:
        """Capture the two tensors that `value` gives."""
        names = self.name(first), self.name(second)
        self.captured.append(Captured(names[0], f"{names[0]}, {names[1]} = {value}"))
        self.captured.append(Captured(names[1], ""))
        return names

    def argument(self) -> Expr:
        """Capture the number that is another in each call, which has that name already."""
        made = f"{NUMBER} = torch.tensor({NUMBER})" if self.argument_is_tensor else ""
        self.captured.append(Captured(NUMBER, made))
        return Expr(NUMBER)

    def lookup(self, base: str, table: Table, chained: bool, learnable: bool = False) -> Expr:
        """Capture `table` and look it up at the indices of its axes."""
        shape = tuple(
            1 if i in table.unit else self.extents.of(axis) for i, axis in enumerate(table.axes)
        )
        kind = kind_of(table)
        dtype = table.dtype if kind == "float" else None
        name = self.add(base, fill(table, shape), learnable=learnable, kind=kind, dtype=dtype)
        if not table.axes:
            return Expr(name, kind=kind)
        indices = ["0" if i in table.unit else axis for i, axis in enumerate(table.axes)]
        if not (chained and self.chains) or len(indices) == 1:
            return Expr(f"{name}[{', '.join(indices)}]", kind=kind)
        self.loops.update(a for i, a in enumerate(table.axes[:-1]) if i not in table.unit)
        return Expr(name + "".join(f"[{i}]" for i in indices), kind=kind)


def kind_of(table: Table) -> Kind:
    """The kind of value that a lookup in `table` gives."""
    return "float" if table.dtype in FLOATS else "bool" if table.dtype == "bool" else "int"


def fill(table: Table, shape: tuple[Size, ...]) -> str:
    """The expression that makes a table of `shape`; see `Table.init`."""
    dtype, init = table.dtype, table.init
    floating = dtype in FLOATS
    default = "float32" if floating else "int64"
    suffix = "" if dtype == default else f", dtype=torch.{dtype}"
    where = tuple_of(shape)
    listed = commas(shape) if shape else "()"
    if init in ("zeros", "ones"):
        suffix = "" if dtype == "float32" else f", dtype=torch.{dtype}"
        return f"torch.{init}({listed}{suffix})"
    if init == "coin" and dtype == "bool":
        return f"torch.rand({listed}) < 0.5"
    if init == "coin":
        return f"torch.randint(2, {where}{'' if dtype == 'int64' else f', dtype=torch.{dtype}'})"
    if init == "arange":
        return _arange(dtype, shape)
    if dtype == "bool":
        return f"torch.randint({table.limit}, {where}).bool()"
    if init == "normal":
        return f"torch.randn({listed}{suffix})"
    if floating:
        return f"torch.rand({listed}{suffix})"
    ids = f"torch.randint({table.limit}, {where}{suffix})"
    return f"{ids}.sort().values" if init == "sorted" else ids


def _arange(dtype: str, shape: tuple[Size, ...]) -> str:
    """0, 1, 2, … in row-major order; a bool table alternates false and true."""
    count = product(shape)
    suffix = "" if dtype in ("int64", "bool") else f", dtype=torch.{dtype}"
    text = f"torch.arange({count}{suffix})"
    if len(shape) != 1:
        text += f".view({commas(shape) if shape else '()'})"
    return f"{text} % 2 == 1" if dtype == "bool" else text
