"""Templates: every value in them is text, unless it is markup that we made.

What comes from a program, an exception, a script or a name is escaped for HTML by jinja2, and
before that spelled out where it is not printable, and cut where it is longer than anybody reads.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from attnfuzz.fuzz.dashboard.highlight import colours
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import cut, plain
from attnfuzz.fuzz.report.live import clock
from attnfuzz.fuzz.report.outcome import frame_text

HERE = Path(__file__).parent


def shown(value: object) -> object:
    """`value` as a template prints it: markup as it is, and of anything else its text."""
    if isinstance(value, Markup) or value is None:
        return "" if value is None else value
    return plain(cut(str(value)))


@cache
def templates() -> Environment:
    """The templates of the pages."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=shown,
    )
    made.filters |= {"counted": counted, "clock": clock, "frame": frame_text, "day": _day}
    made.globals["m"] = made.get_template("macros.html").module
    return made


def render(template: str, **values: Any) -> str:
    """The page that `template` makes of `values`."""
    return templates().get_template(template).render(**values)


@cache
def style() -> str:
    """The style sheet of all pages."""
    return (HERE / "static" / "style.css").read_text() + colours()


@cache
def script() -> str:
    """The script of all pages."""
    return (HERE / "static" / "page.js").read_text()


def hash_of(text: str) -> str:
    """A text as a content-security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
