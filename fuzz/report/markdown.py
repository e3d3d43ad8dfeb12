"""Templates of Markdown: each value goes through `escape.markdown` unless a filter says how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from attnfuzz.fuzz.report.escape import code, fenced, markdown, with_code
from attnfuzz.generators.model.outcome import Raised

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """The text of `template`, a file among the templates, with `values` in it."""
    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # that is for HTML; each value goes through `markdown` instead
        finalize=markdown,
    )
    templates.filters |= {"code": code, "fenced": fenced, "with_code": with_code, "raised": raised}
    return templates.get_template(template).render(**values)


def raised(failure: Raised) -> str:
    """An exception and where it comes from, the innermost frame last."""
    frames = (f"    {one.file}:{one.line} in {one.function}" for one in failure.frames[-6:])
    return "\n".join([f"{failure.type}: {failure.message}", *frames])
