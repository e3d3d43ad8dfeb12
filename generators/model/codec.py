"""Programs and outcomes as plain data and as YAML, and back without loss.

Fields that have their default are left out, so that a program reads as what is special about it,
and its `program_id` outlives new fields. A node that names its `kind` is always written. Floats
that are not finite (an outcome's errors) become the texts "inf", "-inf" and "nan": JSON has no
others.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import REQUIRED, Part, Sort, class_of, kind_of, parts
from attnfuzz.generators.reading.complaints import complaint, located, mismatch
from attnfuzz.generators.reading.safe_yaml import (
    MAX_DEPTH,
    ProgramError,
    dump_yaml,
    load_yaml_safely,
    read_text,
)

__all__ = [
    "ProgramError", "dump_program", "dump_yaml", "from_data", "load_program", "load_yaml_safely",
    "outcome_from_data", "outcome_to_data", "program_id", "read_text", "to_data",
    "valid_from_data",
]  # fmt: skip

T = TypeVar("T")


def load_program(text: str | bytes, where: str = "<program>") -> Program:
    """The program that the YAML text describes.

    Raises ProgramError, one sentence that begins with `where` and the key, when the text is not
    safe YAML, does not describe a program, or describes one that `model.validity` refuses.
    """
    return valid_from_data(load_yaml_safely(text, where), where)


def dump_program(program: Program) -> str:
    """The program as YAML; `load_program` gives back an equal program."""
    return dump_yaml(to_data(program))


def to_data(program: Program) -> dict[str, Any]:
    """The program as JSON-able data, without defaults, in the order of the fields."""
    return _encoded(program)


def from_data(data: Any, where: str = "<program>") -> Program:
    """The program of that data; types are checked strictly (1 is no text, "1" no number), validity
    is not. Raises ProgramError."""
    return _decoded(_programs(), Program, data, where, strict=True)


def valid_from_data(data: Any, where: str = "<program>") -> Program:
    """The same, of a program that `model.validity` accepts. Raises ProgramError."""
    from attnfuzz.generators.model.validity import problems

    program = from_data(data, where)
    for problem in problems(program):
        raise ProgramError(located(where, f"{problem.key}: {problem.sentence}"))
    return program


def program_id(program: Program) -> str:
    """12 hex digits of the sha256 of the canonical JSON: equal for equal programs, everywhere."""
    text = json.dumps(to_data(program), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def outcome_to_data(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON-able data, without defaults."""
    return _encoded(outcome)


def outcome_from_data(data: Any, where: str = "<outcome>") -> Outcome:
    """The outcome of that data. Raises ProgramError."""
    return _decoded(_outcomes(), Outcome, data, where, strict=False)


@cache
def _programs() -> TypeAdapter[Program]:
    return TypeAdapter(Program)


@cache
def _outcomes() -> TypeAdapter[Outcome]:
    return TypeAdapter(Outcome)


def _decoded(adapter: TypeAdapter[T], root: type, data: Any, where: str, strict: bool) -> T:
    """Validation goes through JSON text: only there does pydantic's strict mode take lists for
    tuples and texts for enumerations. Lone surrogates become question marks on the way."""
    _refuse_depth(data, where)
    try:
        text = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise ProgramError(located(where, f"expected plain data: {error}")) from None
    try:
        return adapter.validate_json(text, strict=strict)
    except ValidationError as error:
        raise ProgramError(located(where, complaint(error, data, root))) from None


def _refuse_depth(data: Any, where: str) -> None:
    """Neither our recursion nor anyone else's shall meet its limit."""
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        level = [
            below
            for each in level
            if isinstance(each, Mapping | list | tuple)
            for below in (each.values() if isinstance(each, Mapping) else each)
        ]
        if not level:
            return
    raise ProgramError(mismatch(where, f"at most {MAX_DEPTH} levels of nesting", "more"))


def _encoded(node: Any) -> dict[str, Any]:
    kind, plan = _plan(class_of(node))
    data: dict[str, Any] = {} if kind is None else {"kind": kind}
    for name, default, keeps, encode in plan:
        value = getattr(node, name)
        if keeps or (value is not default and value != default):
            data[name] = None if value is None else encode(value)
    return data


@cache
def _plan(cls: type) -> tuple[str | None, tuple[tuple[str, Any, bool, Callable[[Any], Any]], ...]]:
    """The class's kind, and for each field its name, its default, whether it is written even where
    it has that, and how its value is written."""
    return kind_of(cls), tuple(
        (each.name, each.default, _always_written(each), _ENCODERS[each.sort])
        for each in parts(cls)
    )


def _always_written(each: Part) -> bool:
    default: Any = each.default
    if default is REQUIRED:
        return True
    return each.sort == "node" and default is not None and kind_of(class_of(default)) is not None


def _same(value: Any) -> Any:
    return value


def _real(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def _text(value: str) -> str:
    return str(value.value) if isinstance(value, Enum) else value


def _items(values: tuple[Any, ...]) -> list[Any]:
    return [_encoded(value) if is_dataclass(value) else value for value in values]


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _real(value) if isinstance(value, float) else value for key, value in values.items()
    }


_ENCODERS: dict[Sort, Callable[[Any], Any]] = {
    "node": _encoded,
    "choice": _same,
    "number": _same,
    "real": _real,
    "numbers": list,
    "list": _items,
    "options": _options,
    "text": _text,
}
