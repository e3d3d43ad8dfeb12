"""A number with its noun, singular or plural."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """ "1 case", "31 cases", "1,200 programs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
