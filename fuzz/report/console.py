"""Consoles on which text from anywhere is nothing but text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from attnfuzz.fuzz.report.escape import plain


class PlainConsole(Console):
    """Takes no markup and no emoji out of text, and spells out what would steer a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich renders it, but with characters that are not printable spelled out."""
        for segment in super().render(renderable, options):
            if segment.is_control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)
