"""Derived seeds. Every random choice comes from a written-down integer through `derive`."""

from __future__ import annotations

import hashlib


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed that depends on `seed` and `path` only: the same on every machine."""
    text = "/".join([str(seed), *map(str, path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
