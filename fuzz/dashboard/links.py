"""Where things are found: on the server, or inside one file."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from attnfuzz.fuzz.dashboard.sources import Source


@dataclass(frozen=True)
class ServedLinks:
    """Addresses on the server."""

    def source(self, source: Source, tab: str = "", **query: str | int) -> str:
        """Of a page of `source`: the first one, `buckets`, `programs` or `replays`."""
        asked = urlencode({name: value for name, value in query.items() if value != ""})
        return f"/{source.number}/{tab}" + (f"?{asked}" if asked else "")

    def bucket(self, source: Source, name: str) -> str:
        """Of the bucket with that id."""
        return f"/{source.number}/buckets/{quote(name, safe='')}"

    def program(self, source: Source, name: str) -> str:
        """Of the program with that id."""
        return f"/{source.number}/programs/{quote(name, safe='')}"


@dataclass(frozen=True)
class FileLinks:
    """Addresses inside a file that has the buckets `shown`, by their ids."""

    shown: frozenset[str]

    def source(self, source: Source, tab: str = "", **query: str | int) -> str:
        """None: the file is about one source."""
        return ""

    def bucket(self, source: Source, name: str) -> str:
        """Of its section, where it has one."""
        return f"#bucket-{quote(name, safe='')}" if name in self.shown else ""

    def program(self, source: Source, name: str) -> str:
        """None: the file has no programs but those of buckets."""
        return ""
