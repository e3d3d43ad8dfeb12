"""The one folder under which a run keeps everything temporary, and its sure removal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from attnfuzz.actors.sandbox import reaper

NAME, LOCK = "attnfuzz-", "lock"
UNLOCKED_S = 60.0  # a run has its lock in no time


def sweep(base: Path) -> None:
    """Ends what is left in `base` of this user's runs that were killed together with their reapers,
    as a batch system or a container's end does."""
    for root in base.glob(f"{NAME}*"):
        with contextlib.suppress(OSError):
            if root.stat().st_uid == os.getuid() and not _is_held(root):
                reaper.clean(root, root.name.removeprefix(NAME))


def _is_held(root: Path) -> bool:
    """Whether the run whose folder this is lives, or may have made it just now. Raises OSError."""
    try:
        file = (root / LOCK).open()
    except FileNotFoundError:
        return time.time() - root.stat().st_ctime < UNLOCKED_S
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


class ScratchError(RuntimeError):
    """The scratch folder cannot be made; the message is one sentence."""


class Scratch:
    """A run's scratch folder `root` and its marker `run_id`.

    While it is open, `ATTNFUZZ_RUN=<run_id>` is in this process's environment, for every process
    that it starts to inherit, and a reaper waits. On close, or when this process ends in any way,
    SIGKILL included, all marked processes are killed and `root` is removed. Where the reaper is
    killed too, the next run of the same user does that. The path is short because Unix sockets are
    put under it (their paths hold 107 bytes). Raises ScratchError where no reaper starts.
    """

    def __init__(self, root: Path, run_id: str) -> None:
        self.root = root
        self.run_id = run_id
        self._held = -1
        self._previous = os.environ.get(reaper.MARKER)
        self._owner = os.getpid()
        read_end, self._lifeline = os.pipe()
        try:
            # The reaper carries no marker, an outer run's neither: it would be killed as marked.
            self._reaper = subprocess.Popen(
                [sys.executable, reaper.__file__, str(read_end), run_id, str(root)],
                pass_fds=(read_end,), start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, cwd="/",
                env={k: v for k, v in os.environ.items() if k != reaper.MARKER},
            )  # fmt: skip
        finally:
            os.close(read_end)
        assert self._reaper.stdout is not None
        with self._reaper.stdout as ready:  # Ray may kill this process and its children from now on
            if not ready.read(1):
                raise ScratchError("the process that cleans up after a run does not start")
        os.environ[reaper.MARKER] = run_id

    @classmethod
    def create(cls, base: str | Path = "/tmp") -> Scratch:
        """A new folder `attnfuzz-<8 hex>` in `base`. Raises ScratchError when it cannot be made."""
        sweep(Path(base))
        run_id = secrets.token_hex(4)
        root = Path(base) / f"{NAME}{run_id}"
        scratch = cls(root, run_id)  # its reaper comes first, so that no kill can leave the folder
        try:
            root.mkdir(mode=0o700)
            scratch._hold()
        except OSError as error:
            scratch.close()
            raise ScratchError(
                f"{base}: cannot make a scratch folder there: {error.strerror}"
            ) from error
        return scratch

    def _hold(self) -> None:
        """Shows `sweep` that this run is alive: the file is locked when it gets its name. It says
        which process this is."""
        made = self.root / "lock.new"
        self._held = os.open(made, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        os.write(self._held, f"{self._owner}\n".encode())
        made.rename(self.root / LOCK)

    def close(self) -> None:
        """Kills what is left of the run and removes the folder. Closing twice is harmless."""
        if self._lifeline < 0 or os.getpid() != self._owner:
            return
        if self._previous is None:
            os.environ.pop(reaper.MARKER, None)
        else:
            os.environ[reaper.MARKER] = self._previous
        os.write(self._lifeline, b".")  # asked for, since a forked copy may keep the pipe open
        os.close(self._lifeline)
        self._lifeline = -1
        self._reaper.wait()
        if self._held >= 0:
            os.close(self._held)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
