"""What a forked child does to itself before it touches a program.

Standard library only, and nothing of ours: the zygote loads this file by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PTRACER = 0x59616D61
ANY_PROCESS = ctypes.c_ulong(-1 & (2**64 - 1))

STDOUT, STDERR, FAULTS = "stdout.txt", "stderr.txt", "faults.txt"
STACKS_SIGNAL = signal.SIGUSR1  # torch asks each thread for its native stack by SIGUSR2

_SIGNALS = {
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating-point exception": signal.SIGFPE,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
    "Segmentation fault": signal.SIGSEGV,
}
_FATAL = re.compile(rf"^Fatal Python error: ({'|'.join(_SIGNALS)})", re.MULTILINE)


def prctl(option: int, value: Any) -> None:
    """prctl(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def signal_name(number: int) -> str:
    """ "SIGSEGV"; real-time signals have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def fatal_signal(faults: str) -> int | None:
    """The signal that faulthandler has reported, if it has."""
    found = _FATAL.search(faults)
    return _SIGNALS[found[1]] if found else None


def allow_stacks() -> None:
    """Lets a profiler that is not our ancestor attach; without Yama there is nothing to allow."""
    try:
        prctl(PR_SET_PTRACER, ANY_PROCESS)
    except OSError:
        return


def show_native_frames() -> None:
    """Has torch write the native stack to stderr on a fatal signal, after Python's."""
    torch: Any = sys.modules.get("torch")
    switch = getattr(getattr(torch, "_C", None), "_set_print_stack_traces_on_fatal_signal", None)
    if switch is not None:
        switch(True)


def enter(
    directory: Path,
    limits: dict[str, int],
    marker: str,
    keep: int,
    parent: int,
    cpus: Sequence[int] = (),
) -> None:
    """Makes this process the leader of its own session, limited, in `directory`, on `cpus` if there
    are any.

    `limits` has memory_mb, file_mb, processes. All file descriptors but 0 to 2 and `keep` are
    closed; 1 and 2 go to files in `directory`, where temporary files and compile caches go too.
    Python's stacks are written to its faults.txt on a fatal signal and on STACKS_SIGNAL.
    """
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    allow_stacks()
    with contextlib.suppress(OSError):  # one that is not there any more
        os.sched_setaffinity(0, cpus or os.sched_getaffinity(0))
    _redirect(directory, keep)
    _own_folders(directory, marker)
    _limit(limits)
    faults = open(directory / FAULTS, "w")  # noqa: SIM115  (the handler needs it open for good)
    faulthandler.enable(faults)
    faulthandler.register(STACKS_SIGNAL, faults)


def _redirect(directory: Path, keep: int) -> None:
    for target, path, flags in (
        (0, "/dev/null", os.O_RDONLY),
        (1, directory / STDOUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, directory / STDERR, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        fd = os.open(path, flags, 0o600)
        os.dup2(fd, target)
        os.close(fd)
    os.closerange(3, keep)
    os.closerange(keep + 1, 1 << 16)


def _own_folders(directory: Path, marker: str) -> None:
    os.chdir(directory)
    for variable, name in (
        ("TMPDIR", "tmp"), ("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton"),
    ):  # fmt: skip
        path = directory / name
        path.mkdir()
        os.environ[variable] = str(path)
    os.environ["ATTNFUZZ_PROGRAM"] = marker
    tempfile.tempdir = None  # it remembers the zygote's


def _limit(limits: dict[str, int]) -> None:
    mib = 1 << 20
    for which, value in (
        (resource.RLIMIT_DATA, limits["memory_mb"] * mib),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * mib),
        (resource.RLIMIT_NPROC, limits["processes"] + threads_of_user()),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def threads_of_user() -> int:
    """How many threads this user runs now, which RLIMIT_NPROC counts all; 0 for root, for whom it
    counts nothing."""
    mine, count = os.geteuid(), 0
    if mine == 0:
        return 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == mine:
                count += len(os.listdir(f"/proc/{entry.name}/task"))
        except OSError:  # ended meanwhile
            continue
    return count


def leave() -> None:
    """Ends this process at once, its output flushed: tearing torch down would take 1 s."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the program closed or replaced it
            continue
    os._exit(0)
