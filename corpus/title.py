"""A bucket's title: one line that a maintainer understands.

What is too long ends where a sentence ends, or else where a word does. Where the exception was
raised is left out before anything of what it says.
"""

from __future__ import annotations

import re

TITLE_LENGTH = 140

_SENTENCE = re.compile(r"(?<!>)[.!?;](?= )")
_SOME = 40
"""Characters that the first sentences have to have, to say enough by themselves."""


def title(text: str, suffix: str = "") -> str:
    """`text` in one line, and `suffix` behind it where there is room."""
    text = " ".join(text.replace(" Explanation: ", ": ").split())
    if len(text) + len(suffix) <= TITLE_LENGTH:
        return _joined(text, suffix)
    for end in (suffix, ""):
        ends = [found.end() for found in _SENTENCE.finditer(text)]
        whole = [place for place in ends if _SOME <= place <= TITLE_LENGTH - len(end)]
        if whole:
            return _joined(text[: whole[-1]], end)
    if len(text) <= TITLE_LENGTH:
        return text
    return text[: TITLE_LENGTH - 1].rpartition(" ")[0].rstrip(" ,:;(") + " …"


def _joined(text: str, suffix: str) -> str:
    return text.rstrip(".;") + suffix if suffix else text.rstrip(";")
