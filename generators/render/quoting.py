"""The one place where text that comes from outside becomes Python.

A rendering is put together as text, and is looked through as text: which names does it use, where
may a line be broken? What a program's author chose freely (options, a function's name) takes no
part in that. The text holds a name that stands for it, and `Quoting.fill` puts the quoted value
there when everything else is done. Quoted is what Python reads back as an equal value: that is
checked each time.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import math
import re
from collections.abc import Collection, Mapping, Set
from typing import Any

MAX_MEMBER = 100
"""Characters: some mask's tables within a partial within a method."""

_STANDING = "_quoted_{}_"
_STANDS_FOR = re.compile(r"\b_quoted_([0-9]+)_\b")
_MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]{1,4}\])*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class QuotingError(ValueError):
    """A value that has no literal which reads back as it is."""


class Quoting:
    """The values from outside of one rendering, by the names that stand for them in its text."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._functions: dict[tuple[str, str], int] = {}

    def value(self, value: Any) -> str:
        """A name that stands for the literal of `value`; see `literal`."""
        self._texts.append(literal(value))
        return _STANDING.format(len(self._texts) - 1)

    def function(self, module: str, name: str) -> str:
        """A name that stands for the function `name` of `module`, which `imports` imports. Raises
        QuotingError where Python would not take these for a module and a name in it."""
        if not all(map(is_name, [*module.split("."), name])):
            raise QuotingError(f"expected the names of a module and a function: {module}:{name}")
        if (module, name) not in self._functions:
            self._functions[module, name] = len(self._texts)
            self._texts.append(name)
        return _STANDING.format(self._functions[module, name])

    def imports(self, text: str, own: Set[str]) -> list[str]:
        """Statements that import the functions for `text`, a whole module but for its imports, of
        which `own` are the names. A name that is used in it already, or means something to Python,
        gets an alias."""
        taken = {*own, *_IDENTIFIER.findall(text), *vars(builtins)}
        statements = []
        for (module, name), place in self._functions.items():
            alias = name
            while alias in taken or alias.startswith("__"):
                alias = f"{alias.strip('_')}_function"
            taken.add(alias)
            self._texts[place] = alias
            renamed = "" if alias == name else f" as {alias}"
            statements.append(f"from {module} import {name}{renamed}")
        return statements

    def fill(self, line: str) -> str:
        """The line with all values in their places. They are not looked through again."""
        return _STANDS_FOR.sub(lambda found: self._texts[int(found.group(1))], line)


def is_name(text: str) -> bool:
    """Whether Python takes `text` for a name, as it is and wherever one may stand: ASCII, as other
    letters may be taken for others than they are, and no keyword."""
    return bool(_IDENTIFIER.fullmatch(text)) and not keyword.iskeyword(text)


def is_member(text: str, names: Collection[str]) -> bool:
    """Whether `text` names something in one of `names`: `mask`, `mask.table`, `mask.args[0]`."""
    if len(text) > MAX_MEMBER or not _MEMBER.fullmatch(text) or _STANDS_FOR.search(text):
        return False
    root, *inner = _IDENTIFIER.findall(text)
    return root in names and all(map(is_name, inner))


def literal(value: Any) -> str:
    """The Python literal of plain data: None, truth values, numbers, text, lists, tuples, mappings.
    Text is in double quotes unless it has some itself. Raises QuotingError for anything else."""
    text = _written(value)
    if not _same(ast.literal_eval(text), value):
        raise QuotingError(f"not read back as it was: {text[:60]}")
    return text


def docstring(text: str) -> str:
    """`text` as a module's docstring: line breaks stay; a double quote, a backslash and what cannot
    be seen become other characters."""
    told = text.replace("\\", "/").replace('"', "'")
    told = "".join(c if c in "\n " or (c.isprintable() and not c.isspace()) else "?" for c in told)
    written = f'"""{told}"""'
    if ast.literal_eval(written) != told:
        raise QuotingError(f"not read back as it was: {written[:60]}")
    return written


def number(value: float) -> str:
    """The number with three digits, as an expression."""
    return f"{value:.3g}" if math.isfinite(value) else f'float("{value}")'


def _written(value: Any) -> str:
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in value else text
    if isinstance(value, Mapping):
        pairs = (f"{_written(key)}: {_written(one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_written, value))}{',' * (len(value) == 1)})"
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise QuotingError(f"expected plain data, got {type(value).__name__}")


def _same(read: Any, value: Any) -> bool:
    """Equal and of equal types all the way down, in the same order: True is not 1."""
    if isinstance(value, Mapping):
        return isinstance(read, dict) and _same(list(read.items()), list(value.items()))
    if isinstance(value, list | tuple) and isinstance(read, list | tuple):
        return len(read) == len(value) and all(map(_same, read, value))
    return type(read) is type(value) and bool(read == value)
