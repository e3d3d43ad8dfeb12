"""A port that nobody else is given while it is held.

Standard library only, and nothing of ours: the child loads this file by its path.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved() -> Iterator[int]:
    """A TCP port that is free at all addresses of this machine, held until the block ends. Linux
    gives a port to which a socket is bound to nobody who asks for any, while a server that names
    it, and sets SO_REUSEADDR as torch's stores do, may listen at it: no other process gets in
    between. Raises OSError."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))  # torch listens at all of them too
        yield int(held.getsockname()[1])
