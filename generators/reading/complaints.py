"""What is wrong with data that pydantic refused, as one sentence a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeGuard

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from attnfuzz.generators.model.tree import kind_of, parts
from attnfuzz.generators.reading.safe_yaml import short

_EXPECTED = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dataclass_exact_type": "a mapping",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "list_type": "a list",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "text",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": (">", "gt"),
    "greater_than_equal": (">=", "ge"),
    "less_than": ("<", "lt"),
    "less_than_equal": ("<=", "le"),
}


def complaint(error: ValidationError, data: Any, root: type | None = None) -> str:
    """`key: expected …, got …` for the first problem, and how many more there are.

    `data` is what was refused. `root`, where given, is the dataclass or model that it should have
    become: then unknown and missing names come with the list of those that there are.
    """
    found: dict[str, list[str]] = {}  # a plain union complains once for each of its members
    for detail in error.errors(include_url=False, include_context=True):
        keys = _keys(detail["loc"], data, detail["type"])
        found.setdefault(_path(keys), []).append(_sentence(dict(detail), keys, data, root))
    (path, sentences), *others = found.items()
    more = f" (and {len(others)} more problem{'s' * (len(others) > 1)})" if others else ""
    return f"{path}: {_either(sentences)}{more}" if path else _either(sentences) + more


def mismatch(where: object, expected: str, got: str = "") -> str:
    """`where: expected …, got …`, or without `got` where there is nothing to show."""
    return located(where, f"expected {expected}{f', got {got}' if got else ''}")


def located(where: object, sentence: str) -> str:
    """`where: sentence`; the sentence alone where `where` is "": whoever reads more adds it."""
    return f"{where}: {sentence}" if where != "" else sentence


def _path(keys: list[str]) -> str:
    """`calls[0].q_len` of calls, 0, q_len."""
    steps = (f"[{key}]" if key.isdigit() else f".{key}" for key in keys)
    return "".join(steps).removeprefix(".")


def _either(sentences: list[str]) -> str:
    """`expected a or b, got c` of `expected a, got c` and `expected b, got c`."""
    first, *others = sentences
    expected, comma, got = first.rpartition(", got ")
    alternatives = [each.removeprefix("expected ").rpartition(", got ")[0] for each in others]
    return " or ".join([expected, *alternatives]) + comma + got


def _keys(loc: tuple[int | str, ...], data: Any, problem: str) -> list[str]:
    """The keys from the root to the problem: `loc` without what names a union's member."""
    keys: list[str] = []
    at = data
    for position, step in enumerate(loc):
        here_by_kind = isinstance(at, Mapping) and at.get("kind") == step
        if here_by_kind and (position == 0 or keys and str(loc[position - 1]) == keys[-1]):
            continue
        if _has(at, step):
            at = at[step]
        elif problem == "missing" and position == len(loc) - 1:
            at = None
        elif position + 1 < len(loc) and _has(at, loc[position + 1]):
            continue
        else:
            break
        keys.append(str(step))
    return keys


def _has(value: Any, step: int | str) -> bool:
    if isinstance(value, Mapping):
        return step in value
    return isinstance(value, list) and step in range(len(value))


def _sentence(detail: dict[str, Any], keys: list[str], data: Any, root: type | None) -> str:
    problem, context, got = detail["type"], detail.get("ctx", {}), short(detail["input"])
    if problem in ("unexpected_keyword_argument", "extra_forbidden"):
        known = _names(_classes(root, keys[:-1], data))
        return f"unknown key{', expected one of ' + known if known else ''}"
    if problem == "missing":
        if keys and keys[-1].isdigit():
            return mismatch("", "one more item", got)
        return "this key is required and missing"
    if problem == "union_tag_invalid":
        allowed = context["expected_tags"].replace("'", "")
        return f"unknown kind {short(context['tag'])}, expected one of {allowed}"
    if problem == "union_tag_not_found":
        return mismatch("", f"a kind, one of {_kinds(_classes(root, keys, data))}", "none")
    if problem in ("literal_error", "enum"):
        return mismatch("", context["expected"], got)
    if problem in _BOUNDS:
        sign, name = _BOUNDS[problem]
        what = "a number" if isinstance(context[name], float) else "an integer"
        return mismatch("", f"{what} {sign} {context[name]}", got)
    if problem == "too_long":
        return mismatch("", f"at most {context['max_length']} items", str(context["actual_length"]))
    if problem in _EXPECTED:
        return mismatch("", _EXPECTED[problem], got)
    if problem == "value_error":  # a validator of ours, which says it all
        return str(detail["msg"]).removeprefix("Value error, ")
    said = detail["msg"].replace("Input should be ", "expected ")
    return f"{said[:1].lower()}{said[1:]}, got {got}"


def _names(classes: tuple[type, ...]) -> str:
    """The keys that a mapping may have, if it is known what it should become."""
    if len(classes) != 1:
        return ""
    kind = ["kind"] if _kind_of(classes[0]) else []
    return ", ".join([*kind, *_members(classes[0])])


def _members(cls: type) -> dict[str, tuple[type, ...]]:
    """The fields of a dataclass or model, each with the classes that it may be of."""
    if is_dataclass(cls):
        return {part.name: part.classes for part in parts(cls)}
    fields: dict[str, FieldInfo] = getattr(cls, "model_fields", {})
    return {
        name: (field.annotation,) if _has_members(field.annotation) else ()
        for name, field in fields.items()
    }


def _has_members(annotation: Any) -> TypeGuard[type]:
    return isinstance(annotation, type) and (
        is_dataclass(annotation) or issubclass(annotation, BaseModel)
    )


def _kinds(classes: tuple[type, ...]) -> str:
    return ", ".join(kind for cls in classes if (kind := _kind_of(cls)))


def _kind_of(cls: type) -> str | None:
    return kind_of(cls) if is_dataclass(cls) else None


def _classes(root: type | None, keys: list[str], data: Any) -> tuple[type, ...]:
    """The dataclasses that the value at `keys` may become, as far as the kinds in `data` say."""
    classes = _of_kind((root,) if root else (), data)
    for key in keys:
        if isinstance(data, list):
            data = data[int(key)]
        else:
            data = data.get(key)
            classes = next((_members(cls)[key] for cls in classes if key in _members(cls)), ())
        classes = _of_kind(classes, data)
    return classes


def _of_kind(classes: tuple[type, ...], data: Any) -> tuple[type, ...]:
    kind = data.get("kind") if isinstance(data, Mapping) else None
    return tuple(cls for cls in classes if _kind_of(cls) == kind) or classes
