"""Which exceptions are the user's to mend, and the exit code each ends in.

An error that the input or the machine caused is one sentence on stderr (with `--json` an object
`{"error": sentence}` on stdout) and exit code 2. Anything else is a defect of attnfuzz: its
traceback is shown, and the exit code is 70. Nothing here imports a module of ours: an exception
whose module was never loaded cannot have been raised.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXIT_OK = 0
EXIT_CHANGED = 1
"""The question was answered, and the answer is bad: a program failed, a case changed."""
EXIT_BAD_INPUT = 2
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130

SENTENCES = (
    ("attnfuzz.actors.sandbox.sandbox", "SandboxError"),
    ("attnfuzz.actors.sandbox.scratch", "ScratchError"),
    ("attnfuzz.corpus.case", "CaseError"),
    ("attnfuzz.corpus.known_issues", "KnownIssueError"),
    ("attnfuzz.corpus.store.store", "StoreError"),
    ("attnfuzz.fuzz.campaign.interruptions", "CampaignError"),
    ("attnfuzz.fuzz.campaign.config", "ConfigError"),
    ("attnfuzz.generators.reading.files", "ProgramError"),
)
"""Exceptions of ours whose message is already the one sentence to show: (module, class)."""

REFUSED_BY_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
)
"""Full, over quota, over a size limit, read-only or forbidden: never a defect of ours."""


LONGEST = 2000
"""Characters of a sentence."""


class UserError(Exception):
    """What the user gave cannot be used; the message is one sentence that says what to change."""


def sentence(error: BaseException) -> str | None:
    """The one sentence to show for `error`, or None when `error` is a defect of ours."""
    if isinstance(error, (UserError, *_loaded_sentences())):
        return one_line(str(error))
    if isinstance(error, OSError) and error.errno in REFUSED_BY_THE_MACHINE:
        return os_sentence(error)
    return None


def os_sentence(error: OSError, path: Path | None = None) -> str:
    """`PATH: what the operating system says`, for a path that the user named."""
    where = path if path is not None else error.filename or "the output"
    what = os.strerror(error.errno) if error.errno else str(error)
    return f"{where}: {what[:1].lower()}{what[1:]}"


def one_line(text: str) -> str:
    """`text` with its line breaks turned into spaces, cut where it quotes too much."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


@contextmanager
def user_path(path: Path) -> Iterator[None]:
    """Turns an OSError about a path that the user named into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(os_sentence(error, path)) from error


def _loaded_sentences() -> tuple[type[BaseException], ...]:
    found = (getattr(sys.modules.get(module), name, None) for module, name in SENTENCES)
    return tuple(cls for cls in found if isinstance(cls, type))
