"""What a child reports: lines of JSON behind a token that only this run knows."""

from __future__ import annotations

import json
import os
from typing import Any

LONGEST = 8 << 20  # bytes; an outcome is under a megabyte, more is a program writing to our pipe


class Messages:
    """Reads messages from the non-blocking pipe `fd`; anything without `token` is ignored."""

    def __init__(self, fd: int, token: str) -> None:
        self.fd = fd
        self._token = token.encode()
        self._rest = bytearray()

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages that have come, and whether more may come (False at the pipe's end)."""
        found: list[dict[str, Any]] = []
        for _ in range(64):  # 4 MiB a call at most, so that a flood cannot keep us from deadlines
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return found, True
            if not data:
                return found, False
            found += self._split(data)
        return found, True

    def _split(self, data: bytes) -> list[dict[str, Any]]:
        before, newline, after = data.rpartition(b"\n")
        if not newline:
            self._rest += after
            if len(self._rest) > LONGEST:
                self._rest.clear()
            return []
        lines = bytes(self._rest + before).split(b"\n")
        self._rest = bytearray(after)
        return [m for line in lines if (m := self._decode(line)) is not None]

    def _decode(self, line: bytes) -> dict[str, Any] | None:
        if not line.startswith(self._token):
            return None
        try:
            return json.loads(line[len(self._token) :])
        except ValueError:  # another thread wrote into the middle of it
            return None
