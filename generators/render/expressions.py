"""Python expressions as text that knows its precedence, so that only needed brackets are written.

An `Expr` also knows what kind of value it stands for: a Python constant (`const`, with its value),
or a bool, int or float tensor.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["const", "bool", "int", "float"]

COMPARE, OR, AND, ADD, MUL, UNARY, ATOM = range(7)

_LEVELS = {
    "|": OR, "&": AND, "+": ADD, "-": ADD, "*": MUL, "/": MUL, "//": MUL, "%": MUL,
    "<": COMPARE, "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "==": COMPARE, "!=": COMPARE,
}  # fmt: skip


class Expr(NamedTuple):
    """`text` binds at `level`; `value` is a constant's; `scored`: the incoming score is in it."""

    text: str
    level: int = ATOM
    kind: Kind = "int"
    value: float | int = 0
    scored: bool = False

    def at(self, level: int) -> str:
        """The text, in brackets where it binds less tightly than `level`."""
        return self.text if self.level >= level else f"({self.text})"


def number(value: float | int) -> Expr:
    """A Python constant."""
    if value in (float("inf"), float("-inf")):
        return Expr(f'float("{value}")', ATOM, "const", value)
    return Expr(repr(value), UNARY if value < 0 else ATOM, "const", value)


def promoted(op: str, left: Expr, right: Expr) -> Kind:
    """The kind of an arithmetic result, where at least one operand is a tensor."""
    kinds = {left.kind, right.kind}
    floats = [e for e in (left, right) if e.kind == "const" and isinstance(e.value, float)]
    if "float" in kinds or floats or op == "/":
        return "float"
    return "bool" if kinds == {"bool"} else "int"


def binary(left: Expr, op: str, right: Expr) -> Expr:
    """`left op right`; adding a negative constant is written as a subtraction."""
    if op in "+-" and right.kind == "const" and right.value < 0:
        op, right = "-" if op == "+" else "+", number(-right.value)
    level = _LEVELS[op]
    strict = level + 1
    text = f"{left.at(strict if level == COMPARE else level)} {op} {right.at(strict)}"
    kind: Kind = "bool" if level in (COMPARE, OR, AND) else promoted(op, left, right)
    return Expr(text, level, kind, scored=left.scored or right.scored)


def shifted(expr: Expr, offset: int) -> Expr:
    """`expr + offset`, nothing where the offset is 0."""
    return binary(expr, "+", number(offset)) if offset else expr


def unary(op: str, inner: Expr) -> Expr:
    """`op inner`; the kind stays that of `inner`."""
    return Expr(op + inner.at(UNARY), UNARY, inner.kind, scored=inner.scored)


def call(function: str, *args: Expr, kind: Kind = "float") -> Expr:
    """`function(args…)`."""
    text = f"{function}({', '.join(a.text for a in args)})"
    return Expr(text, ATOM, kind, scored=any(a.scored for a in args))


def method(inner: Expr, name: str, args: str = "", kind: Kind | None = None) -> Expr:
    """`inner.name(args)`."""
    text = f"{inner.at(ATOM)}.{name}({args})"
    return Expr(text, ATOM, kind or inner.kind, scored=inner.scored)
