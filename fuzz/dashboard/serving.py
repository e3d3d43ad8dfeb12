"""Serving the pages until somebody ends it."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import uvicorn

from attnfuzz.fuzz.dashboard.permission import Permission
from attnfuzz.fuzz.dashboard.server import application
from attnfuzz.fuzz.dashboard.sources import Source

LAST_ANSWERS_S = 1
"""Seconds that what is still being answered is given in the end."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port`. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def serve(
    sources: Sequence[Source],
    listening: socket.socket,
    hosts: Sequence[str],
    permission: Permission | None = None,
) -> None:
    """Answers on `listening` to those who ask for `hosts`, until SIGINT or SIGTERM. With a
    `permission` whoever has its key may decide."""
    config = uvicorn.Config(
        application(sources, hosts, permission),
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
    )
    uvicorn.Server(config).run(sockets=[listening])
