"""What ends a campaign early: signals, and a disk that is full."""

from __future__ import annotations

import contextlib
import errno
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

ROOM_BYTES = 16 << 20
ROOM_S = 600.0
"""Seconds that a campaign waits for that much room on its directory's disk."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class CampaignError(Exception):
    """The campaign cannot begin or go on; one sentence. What is saved is whole."""


def has_room(directory: Path) -> bool:
    """Whether the disk has room for what a step writes. Where it has not, nothing is taken from the
    workers until it has."""
    return shutil.disk_usage(directory).free >= ROOM_BYTES


@contextlib.contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM ask the campaign to stop; a second SIGINT interrupts it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """A disk that is full in the middle ends the campaign in one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        where = error.filename or directory
        raise CampaignError(
            f"{where}: {error.strerror}; what was saved before is whole, and --resume goes on."
        ) from error
