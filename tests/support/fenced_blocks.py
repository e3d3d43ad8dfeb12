"""The fenced blocks of a text of Markdown, read as a tracker reads them."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^(?P<fence>`{3,})\w*\n(?P<text>.*?)\n(?P=fence)$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[str]:
    """What stands in the blocks."""
    return [found["text"] for found in _BLOCK.finditer(text)]


def without_blocks(text: str) -> str:
    """What stands outside of them."""
    return _BLOCK.sub("", text)
