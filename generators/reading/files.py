"""Reading what others have written: regular files of a limited size, and inside of a folder from
elsewhere (a case, a bucket, a corpus) never by a link, which may lead anywhere.

What a person names is trusted further: it may be reached by links, or be a pipe that the shell made
(`/dev/stdin`, `<(...)`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

MAX_BYTES = 1_000_000
MAX_ENTRIES = 100_000
"""Files and folders looked at in one corpus."""

DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Names of what this process has open already: the only pipes that somebody surely writes to."""

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO without a writer would block for ever
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class ProgramError(ValueError):
    """Bad input, as one sentence naming the place, the key and what was expected."""


def read_text(path: Path | str) -> str:
    """The text of a file that a person named. Raises ProgramError where it is missing, unreadable,
    no regular file, too large or not UTF-8; never reads more than `MAX_BYTES`."""
    given = str(path).startswith(DESCRIPTORS)
    with _refused(path):
        handle = os.open(path, _OPEN & ~os.O_NONBLOCK if given else _OPEN)
        raw = _content(handle, path, any_sort=given)
    return decoded(raw, str(path))


def read_inside(folder: Path, name: str) -> str:
    """The text of the file `name` ("preload/fault.py") in `folder`, which may itself be a link,
    while nothing below it may. Raises ProgramError as `read_text` does."""
    where = folder / name
    *steps, last = PurePath(name).parts
    with _refused(where):
        at = os.open(folder, _FOLDER)
        try:
            for step in steps:
                below = os.open(step, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            raw = _content(os.open(last, _OPEN | os.O_NOFOLLOW, dir_fd=at), where)
        finally:
            os.close(at)
    return decoded(raw, str(where))


def is_there(path: Path) -> bool:
    """Whether there is anything of that name, a link that leads nowhere too. Raises ProgramError
    where that cannot be told."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ProgramError(_sentence(path, error)) from None
    return True


def regular_or_missing(path: Path) -> None:
    """Raises ProgramError where something else than a regular file is at `path`, a link too: for
    files that a library opens by itself."""
    if is_there(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise ProgramError(f"{path}: expected a regular file, got {_sort(path.lstat().st_mode)}")


def folders(folder: Path) -> list[Path]:
    """The folders in `folder` whose names do not begin with a dot, sorted. Raises ProgramError, for
    a link among them too."""
    return sorted(path for path, is_folder in _entries(folder, [MAX_ENTRIES]) if is_folder)


def files_in(folder: Path, most: int) -> list[str]:
    """The names of what is in `folder`, sorted; those that begin with a dot are passed over. Raises
    ProgramError, for a link or a folder among them and for more than `most` too."""
    found = []
    for path, is_folder in _entries(folder, [most], most):
        if is_folder:
            raise ProgramError(f"{path}: expected a file, got a folder")
        found.append(path.name)
    return sorted(found)


def holding(top: Path, name: str) -> list[Path]:
    """The folders at and below `top` that hold something called `name`, sorted; names that begin
    with a dot are passed over. Raises ProgramError, for a link among them too."""
    found: list[Path] = []
    left = [MAX_ENTRIES]
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        for path, is_folder in _entries(folder, left):
            if path.name == name:
                found.append(folder)
            elif is_folder:
                waiting.append(path)
    return sorted(found)


def decoded(text: str | bytes, where: str) -> str:
    """`text` as UTF-8 of at most `MAX_BYTES`. Raises ProgramError."""
    if len(text) > MAX_BYTES:
        raise ProgramError(f"{where}: expected at most {MAX_BYTES} bytes, got more")
    try:
        if isinstance(text, str):
            text.encode("utf-8")  # lone surrogates are not text
            return text
        return text.decode("utf-8")
    except UnicodeError:
        raise ProgramError(f"{where}: expected UTF-8 text, got binary data") from None


def _entries(folder: Path, left: list[int], most: int | None = None) -> Iterator[tuple[Path, bool]]:
    """What is in `folder`, and whether each is a folder; counts down what is `left` to look at of
    `most`, by default `MAX_ENTRIES`."""
    most = MAX_ENTRIES if most is None else most
    with _refused(folder), os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith("."):
                continue
            left[0] -= 1
            if left[0] < 0:
                raise ProgramError(f"{folder}: expected at most {most} files, got more")
            if entry.is_symlink():
                raise ProgramError(f"{entry.path}: expected no link inside a corpus, got one")
            yield Path(entry.path), entry.is_dir(follow_symlinks=False)


def _content(handle: int, where: Path | str, any_sort: bool = False) -> bytes:
    """At most one byte more than is allowed; the handle is closed."""
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode) and (not any_sort or stat.S_ISDIR(mode)):
        os.close(handle)
        raise ProgramError(f"{where}: expected a regular file, got {_sort(mode)}")
    with os.fdopen(handle, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _sort(mode: int) -> str:
    return _SORTS.get(stat.S_IFMT(mode), "something else")


_SORTS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def _refused(path: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProgramError(_sentence(path, error)) from None
    except ValueError as error:  # a NUL in the name
        if isinstance(error, ProgramError):
            raise
        raise ProgramError(f"{path}: cannot be read: {error}") from None


def _sentence(path: Path | str, error: OSError) -> str:
    if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and os.path.islink(path)):
        return f"{path}: expected no link inside a corpus, got one"
    if error.errno == errno.ENXIO:  # opening a socket
        return f"{path}: expected a regular file, got a socket"
    return f"{path}: cannot be read: {error.strerror or error}"
