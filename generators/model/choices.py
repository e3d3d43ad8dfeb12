"""The choices of one node of a program as features."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from attnfuzz.generators.model.tree import REQUIRED, class_of, parts


def choices(node: Any, prefix: str, but: Collection[str] = ()) -> Iterator[str]:
    """The node's own choices, options and scale that are not the default, as `prefix.name`, but for
    those of the fields `but`."""
    for each in parts(class_of(node)):
        value = getattr(node, each.name)
        if each.name in but or each.default is REQUIRED or value == each.default:
            continue
        key = f"{prefix}.{each.name}".removeprefix(".")
        if each.sort == "choice":
            yield key if each.choices == (False, True) else f"{key}.{str(value).lower()}"
        elif each.sort == "options":
            yield from (f"{key}.{name}" for name in value)
        elif each.name == "scale":
            yield key
            if value <= 0:
                yield f"{key}.negative" if value else f"{key}.0"
