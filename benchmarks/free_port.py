"""A port that nobody listens at."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Its number; free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
