"""What a refusal by design is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnfuzz.generators.model.program import Program

Needs = Callable[[Program], bool]


def always(program: Program) -> bool:
    """The condition of a refusal that any program of a kernel may meet."""
    return True


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One refusal. `pattern` is a regular expression searched in "Type: message" of the innermost
    exception; `why` is one line for a person; `needs` says whether a program requires what is
    declined; `thread` is a public discussion.
    """

    pattern: str
    why: str
    needs: Needs = always
    thread: str = ""
