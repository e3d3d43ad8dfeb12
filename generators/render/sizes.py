"""Extents as text: an integer where the program has one shape, a name where calls differ."""

from __future__ import annotations

import math
import re

Size = int | str


def plus(size: Size, extra: int) -> Size:
    """`size + extra`."""
    if isinstance(size, int):
        return size + extra
    if found := re.fullmatch(r"(.*) ([+-]) (\d+)", size):
        size, extra = found[1], extra + int(found[2] + found[3])
    return f"{size} + {extra}" if extra > 0 else f"{size} - {-extra}" if extra else size


def times(size: Size, factor: int) -> Size:
    """`size * factor`."""
    if isinstance(size, int):
        return size * factor
    return size if factor == 1 else f"{size} * {factor}"


def blocks(size: Size, block: int) -> Size:
    """How many blocks cover `size`."""
    if isinstance(size, int):
        return -(-size // block)
    return f"-(-{f'({size})' if ' ' in size else size} // {block})"


def largest(a: Size, b: Size) -> Size:
    """The larger of both."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else f"max({a}, {b})"


def total(a: Size, b: Size) -> Size:
    """`a + b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return f"{a} + {b}"


def commas(sizes: tuple[Size, ...]) -> str:
    """The sizes as arguments or the inside of a tuple."""
    return ", ".join(map(str, sizes))


def tuple_of(sizes: tuple[Size, ...]) -> str:
    """The sizes as a tuple."""
    return f"({commas(sizes)}{',' if len(sizes) == 1 else ''})"


def product(sizes: tuple[Size, ...]) -> Size:
    """The product of the sizes."""
    constant = 1
    names = []
    for size in sizes:
        if isinstance(size, int):
            constant *= size
        else:
            names.append(f"({size})" if " " in size else size)
    if not names or not constant:
        return constant
    return " * ".join([*names, *([str(constant)] if constant != 1 else [])])


def inverse_root(n: int) -> str:
    """1/sqrt(n) as a Python constant expression."""
    root = math.isqrt(n)
    if root * root == n and (1.0 / root).hex().startswith("0x1.0000000000000p"):
        return repr(1.0 / root)
    return f"{n} ** -0.5"


def query_size(which: str, power: float) -> str:
    """The size of q called `which` (`head_dim` or `q_len`) to `power`, as what the attention
    function computes."""
    return f"q.size({-1 if which == 'head_dim' else -2}) ** {power}"


def root(n: int) -> str:
    """sqrt(n) as a Python constant expression."""
    exact = math.isqrt(n)
    return repr(float(exact)) if exact * exact == n else f"{n} ** 0.5"
