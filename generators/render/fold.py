"""Breaking long lines the way a formatter does: one bracket at a time, from the outside in."""

from __future__ import annotations

WIDTH = 100
_OPEN, _CLOSE = "([{", ")]}"


def fold(line: str) -> list[str]:
    """`line` as lines of at most 100 columns, where its brackets and operators allow."""
    if len(line) <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    span = _bracket(line)
    operators = _top_level_operators(line)
    if operators and line.lstrip().startswith("return "):
        return _bracketed(indent, "return ", line.strip()[len("return ") :])
    if span is None:
        return [line]
    start, end = span
    inside = line[start + 1 : end]
    parts = _split(inside, ",") or _split_operators(inside)
    inner = indent + "    "
    folded = [line[: start + 1]]
    if len(inner) + len(inside) <= WIDTH and "lambda" not in inside:
        folded.append(inner + inside.rstrip(", "))
    else:
        comma = "," if _split(inside, ",") else ""
        for part in parts:
            folded.extend(fold(inner + part + comma))
    folded.extend(fold(indent + line[end:]))
    return folded


def _bracketed(indent: str, head: str, expression: str) -> list[str]:
    """`head (…)` with the expression's operands one to a line."""
    lines = [f"{indent}{head}("]
    for part in _split_operators(expression):
        lines.extend(fold(indent + "    " + part))
    return [*lines, f"{indent})"]


def _depths(text: str) -> list[int]:
    """The bracket depth at each character, that of a bracket being the one outside it."""
    depth, depths = 0, []
    quote, escaped = "", False
    lambdas: set[int] = set()  # the depths of lambdas whose arguments are being listed
    for place, character in enumerate(text):
        if not quote and text.startswith("lambda ", place):
            lambdas.add(depth)
        elif character == ":":
            lambdas.discard(depth)
        if quote:
            closes = character == quote and not escaped
            escaped = character == "\\" and not escaped
            quote = "" if closes else quote
        elif character in "\"'":
            quote = character
        elif character in _CLOSE:
            depth -= 1
        depths.append(depth + (1000 if quote or depth in lambdas else 0))
        if not quote and character in _OPEN:
            depth += 1
    return depths


def _bracket(text: str) -> tuple[int, int] | None:
    """The bracket to open up: the last with something in it that leaves what is before and after
    it short enough, else the one with the most in it."""
    depths = _depths(text)
    spans, start = [], 0
    for i, character in enumerate(text):
        if not depths[i] and character in _OPEN:
            start = i
        elif not depths[i] and character in _CLOSE and i - start > 1:
            spans.append((start, i))
    for first, last in reversed(spans):
        if first < WIDTH and len(text) - last <= WIDTH // 2:
            return first, last
    return max(spans, key=lambda span: span[1] - span[0], default=None)


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators outside all brackets; none where there is no separator."""
    depths = _depths(text)
    parts, start = [], 0
    for i, character in enumerate(text):
        if character == separator and depths[i] == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    if not parts:
        return []
    return [*parts, last] if (last := text[start:].strip()) else parts


def _top_level_operators(text: str) -> list[int]:
    depths = _depths(text)
    return [
        i
        for i, character in enumerate(text[:-2])
        if depths[i] == 0 and character == " " and text[i + 1] in "&|+-*/" and text[i + 2] in " /"
    ]


def _split_operators(text: str) -> list[str]:
    """The operands of the weakest binary operators outside all brackets, operators in front."""
    places = _top_level_operators(text)
    for weakest in ("|", "&", "+-", "*/"):
        cuts = [i for i in places if text[i + 1] in weakest]
        if cuts:
            bounds = [0, *cuts, len(text)]
            return [text[a:b].strip() for a, b in zip(bounds, bounds[1:], strict=False)]
    return [text]
