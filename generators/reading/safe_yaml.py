"""YAML from strangers: read with hard limits, written so that it reads back exactly.

What is read is the core of YAML 1.2: mappings with text keys, lists, text, integers, finite
numbers, true/false and null. Everything else that YAML offers (anchors and aliases, tags, merge
keys, dates, base-60 numbers, `yes` for true) is refused or plain text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from typing import Any

import yaml

from attnfuzz.generators.reading.files import MAX_BYTES, ProgramError, decoded, read_text

__all__ = [
    "MAX_BYTES", "MAX_DEPTH", "MAX_DIGITS", "ProgramError", "dump_yaml", "load_yaml_safely",
    "read_text", "short",
]  # fmt: skip

MAX_DEPTH = 64
MAX_DIGITS = 40
"""Of an integer: more than any that means something, fewer than Python's conversions refuse."""


def load_yaml_safely(text: str | bytes, where: str = "<yaml>") -> Any:
    """The plain data of one YAML document.

    Raises ProgramError, naming the line where there is one, for more than `MAX_BYTES`, nesting
    beyond `MAX_DEPTH`, aliases, anchors, tags, duplicate or non-text keys, non-finite numbers,
    several documents, and text that is not YAML at all.
    """
    text = decoded(text, where)
    try:
        _refuse_dangers(text, where)
        return yaml.load(text, Loader=_Loader)  # a CSafeLoader, and its text has been vetted
    except yaml.MarkedYAMLError as error:
        raise ProgramError(f"{where}: {_at(error.problem_mark)}{error.problem}") from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise ProgramError(f"{where}: expected YAML, got other bytes: {reason}") from None


def dump_yaml(data: Any) -> str:
    """Block-style YAML of plain data, keys in the order given, lists of scalars on one line.
    `load_yaml_safely` gives back equal data; floats are exact."""
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False,
        width=100,
    )  # fmt: skip


def _at(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""


def _refuse_dangers(text: str, where: str) -> None:
    """Looks at the parser's events, one by one, before anything is built from them."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        at = f"{where}: {_at(event.start_mark)}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ProgramError(f"{at}YAML aliases and anchors are not allowed")
        if (tag := getattr(event, "tag", None)) is not None:
            raise ProgramError(f"{at}YAML tags are not allowed, got {tag[:60]}")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise ProgramError(f"{at}expected one YAML document, got several")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise ProgramError(f"{at}expected at most {MAX_DEPTH} levels of nesting, got more")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Loader(yaml.CSafeLoader):
    """Resolves the core schema of YAML 1.2 only; mappings have distinct text keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refusal(key_node, f"expected a key of plain text, got {short(key)}")
            if key in result:
                raise _refusal(key_node, f"the key {short(key)} stands here twice")
            result[key] = self.construct_object(value_node, deep=deep)
        return result

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        text = str(self.construct_scalar(node))
        if node.tag == _INT and len(text) > MAX_DIGITS:
            raise _refusal(
                node, f"expected a number of at most {MAX_DIGITS} digits, got {len(text)}"
            )
        try:
            number = int(text) if node.tag == _INT else float(text)
        except ValueError:  # `.inf`
            number = math.nan
        if not math.isfinite(number):
            raise _refusal(node, f"expected a finite number, got {short(text)}")
        return number


class _Dumper(yaml.CSafeDumper):
    """Quotes whatever an older or newer YAML reader might take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates become "?"
        return self.represent_scalar(_TEXT, text, style="|" if "\n" in text else None)

    def represent_items(self, items: list[Any] | tuple[Any, ...]) -> yaml.Node:
        plain = not any(isinstance(item, list | tuple | dict) for item in items)
        return self.represent_sequence(_LIST, items, flow_style=plain)


_TEXT, _INT, _FLOAT, _LIST, _BOOL, _NULL = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "seq", "bool", "null")
)
_CORE_SCHEMA = (  # in this order: an integer also reads as a float
    (_NULL, r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    (_BOOL, r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    (_INT, r"^[-+]?[0-9]+$", list("-+0123456789")),
    (_FLOAT, r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    (_FLOAT, r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", list("-+.")),
)
for _tag, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), _first)
    _Dumper.add_implicit_resolver(_tag, re.compile(_pattern), _first)
_Loader.add_constructor(_INT, _Loader.construct_number)
_Loader.add_constructor(_FLOAT, _Loader.construct_number)
_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_items)
_Dumper.add_representer(tuple, _Dumper.represent_items)


def _refusal(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def short(value: object) -> str:
    """A value as a sentence shows it: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
