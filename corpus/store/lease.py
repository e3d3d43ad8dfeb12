"""Who holds a campaign's directory: a file that its holder renews, on any shared disk.

A lock of the operating system dies with its holder on one machine. On a shared disk it may outlive
the machine that held it, or not be seen from another one. A lease is a small file that says who
holds it, and whose age is told by the disk's own clock: a file made beside it is as old as now.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from attnfuzz.corpus.models import Line
from attnfuzz.generators.reading.files import ProgramError, read_text

LEASE = "campaign.lease"

RENEWED_S = 5.0
EXPIRES_S = 30.0
"""Seconds after which a lease that nobody renews is anybody's: six renewals."""

SETTLES_S = 2.0
"""Seconds after which whoever took an expired lease looks whether another was later."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lease: a `token` that no other has, and the process: `boot` and `pids` name the
    run of its machine's kernel and the space that its `pid` is of."""

    __pydantic_config__ = ConfigDict(extra="ignore")
    token: Line
    host: Line
    pid: Annotated[int, Field(ge=1)]
    boot: Line = ""
    pids: Line = ""

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}"


_HOLDER = TypeAdapter(Holder)


class Held(Exception):
    """Somebody else holds the lease; the message says who."""


def this_process() -> Holder:
    """This process as a holder, under a new token."""
    return Holder(
        token=secrets.token_hex(8),
        host=socket.gethostname(),
        pid=os.getpid(),
        boot=_boot(),
        pids=_pids(),
    )


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _pids() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def holder_of(directory: Path) -> Holder | None:
    """Who holds the directory, dead or alive; None where nobody does, or nothing can be read."""
    try:
        return _HOLDER.validate_json(read_text(directory / LEASE))
    except (OSError, ProgramError, ValueError):
        return None


def is_dead(holder: Holder) -> bool:
    """Whether the holder is known to have ended: it was a process of this machine."""
    here = this_process()
    if holder.host != here.host or not holder.boot:
        return False
    if holder.boot != here.boot:
        return True
    if holder.pids != here.pids:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def age_s(directory: Path) -> float | None:
    """For how many seconds the lease has not been renewed, by the clock of the disk; None where
    there is none. Raises OSError."""
    probe = directory / f"{LEASE}.{secrets.token_hex(4)}"
    try:
        probe.touch()
        return max(0.0, probe.stat().st_mtime - (directory / LEASE).stat().st_mtime)
    except FileNotFoundError:
        return None
    finally:
        probe.unlink(missing_ok=True)


class Lease:
    """The lease on a directory, held and renewed by a thread until `close`."""

    def __init__(self, directory: Path, expires_s: float = EXPIRES_S) -> None:
        """Takes it where nobody holds it, or whoever did has ended or not renewed it for
        `expires_s` seconds. Raises Held, or OSError."""
        self._directory = directory
        self._file = directory / LEASE
        self._expires_s = expires_s
        self._me = this_process()
        self._renewed = time.monotonic()
        self._lost: str | None = None
        self._ended = threading.Event()
        self._take()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def _take(self) -> None:
        made = self._file.with_name(f"{LEASE}.{self._me.token}")
        made.write_bytes(_HOLDER.dump_json(self._me) + b"\n")
        try:
            if self._take_free(made):
                return
            there = holder_of(self._directory)
            age = age_s(self._directory)
            is_over = there is not None and is_dead(there)
            if age is not None and age < self._expires_s and not is_over:
                raise Held(str(there) if there is not None else "somebody")
            os.replace(made, self._file)
        finally:
            made.unlink(missing_ok=True)
        if not is_over:
            time.sleep(SETTLES_S)
        if not self._is_mine():
            raise Held(str(holder_of(self._directory) or "somebody"))

    def _take_free(self, made: Path) -> bool:
        """Takes it where there is none: only one can make a file of that name."""
        try:
            os.link(made, self._file)
        except FileExistsError:
            return False
        except OSError:  # a disk without links
            try:
                os.close(os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                return False
            os.replace(made, self._file)
        return True

    def _is_mine(self) -> bool:
        return holder_of(self._directory) == self._me

    def _keep(self) -> None:
        while not self._ended.wait(min(RENEWED_S, self._expires_s / 3)):
            self._renew()

    def _renew(self) -> None:
        """Looks whether it is still ours, and renews it; a disk that does not answer, or is full,
        is tried again."""
        with contextlib.suppress(OSError):
            there = holder_of(self._directory)
            if there is not None and there != self._me:
                self._lost = str(there)
            elif there is not None:
                os.utime(self._file)
                self._renewed = time.monotonic()

    @property
    def lost_to(self) -> str | None:
        """Who has taken it, as it was not renewed in time; None while it is ours. Where it has not
        been renewed for long, this process may have slept: then it is looked at first."""
        if self._lost is None and time.monotonic() - self._renewed > self._expires_s / 2:
            self._renew()
        return self._lost

    def close(self) -> None:
        """Gives it back."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            if self._is_mine():
                self._file.unlink()
