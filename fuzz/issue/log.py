"""What a script wrote, as much of it as a person reads, without the folders of this machine."""

from __future__ import annotations

from attnfuzz.fuzz.campaign.save_case import portable

FIRST, LAST, WIDEST = 6, 34, 240
"""Lines kept of the beginning and of the end, and characters of a line."""


def trimmed(text: str) -> str:
    """`text` as the beginning and the end of it, each line cut where it is very long."""
    lines = [line for line in portable({"": text})[""].rstrip().splitlines() if line.strip()]
    lines = [line if len(line) <= WIDEST else f"{line[:WIDEST]} …" for line in lines]
    if len(lines) > FIRST + LAST:
        left_out = len(lines) - FIRST - LAST
        lines = [*lines[:FIRST], f"… ({left_out:,} lines left out)", *lines[-LAST:]]
    return "\n".join(lines)
