"""Source text as HTML: highlighted, and compared."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer, YamlLexer

from attnfuzz.fuzz.report.escape import plain

LIGHT, DARK = "default", "github-dark"


def python(text: str) -> Markup:
    """A Python text as HTML, its characters escaped."""
    return _highlighted(text, PythonLexer())


def yaml(text: str) -> Markup:
    """The same of YAML."""
    return _highlighted(text, YamlLexer())


def _highlighted(text: str, lexer: PythonLexer | YamlLexer) -> Markup:
    formatter: HtmlFormatter[str] = HtmlFormatter(nowrap=True)
    return Markup(highlight(plain(text).rstrip(), lexer, formatter))


def colours() -> str:
    """The style sheet of highlighted text, for a light and a dark scheme."""
    light = HtmlFormatter(style=LIGHT).get_style_defs(".code")
    dark = HtmlFormatter(style=DARK).get_style_defs(".code")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


@dataclass(frozen=True)
class Compared:
    """A line of two texts side by side; `how` says whether they agree there."""

    left: str
    right: str
    how: Literal["equal", "replace", "delete", "insert"]


def compared(left: str, right: str) -> list[Compared]:
    """Two texts, line by line."""
    one, two = left.splitlines(), right.splitlines()
    found: list[Compared] = []
    for how, a, b, c, d in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        for place in range(max(b - a, d - c)):
            lines = [side[at] if at < end else "" for side, at, end in
                     ((one, a + place, b), (two, c + place, d))]  # fmt: skip
            found.append(Compared(lines[0], lines[1], how))
    return found
