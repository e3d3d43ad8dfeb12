"""Text from anywhere, as a terminal or a tracker may be given it.

A title, a message, a path or a script may hold what steers a terminal (escape sequences, carriage
returns), what turns the direction of writing, and what Markdown takes for more than text. All that
is printed goes through here; JSON alone has escapes of its own.
"""

from __future__ import annotations

import re

import typer

KEPT = frozenset("\n\t")

LONGEST = 20_000
"""Characters shown of one text."""


def plain(text: str) -> str:
    r"""`text` with every character that is not printed spelled out (`\x1b`, `\u202e`), line breaks
    and tabs excepted."""
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in KEPT else _spelled(one) for one in text)


def cut(text: str) -> str:
    """`text`, without what is longer than anybody reads."""
    left_out = len(text) - LONGEST
    return text if left_out <= 0 else f"{text[:LONGEST]}\n({left_out:,} more characters)"


def _spelled(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def say(text: str, *, end: str = "\n") -> None:
    """Prints `text` on stdout."""
    typer.echo(plain(text) + end, nl=False)


class Markup(str):
    """Text that is Markdown already."""


def markdown(value: object) -> Markup:
    """`value` in one line, as prose: Markdown, HTML and mentions in it are only characters."""
    if isinstance(value, Markup):
        return value
    text = " ".join(plain(str(value)).split())
    text = re.sub(r"([\\`*{}\[\]<>|~$]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)
    text = re.sub(r"(?<![\w/])(@|#|GH-)(?=\w)", r"\1<!-- -->", text)
    return Markup(re.sub(r"^([#+-]|\d+[.)])(?=\s|$)", r"\\\1", text))


def with_code(value: object) -> Markup:
    """`value` in one line, as prose in which what stands between backticks is code."""
    return Markup(markdown(value).replace("\\`", "`"))


def code(value: object) -> Markup:
    """`value` in one line as code, in a cell of a table too."""
    text = " ".join(plain(str(value)).split()).replace("|", r"\|")
    ticks = "`" * (_longest_run(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return Markup(f"{ticks}{space}{text}{space}{ticks}" if text else "")


def fenced(value: object, language: str = "") -> Markup:
    """`value` as a block of code, between fences that nothing in it can close."""
    text = plain(str(value)).rstrip()
    fence = "`" * max(3, _longest_run(text) + 1)
    return Markup(f"{fence}{language}\n{text}\n{fence}")


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
