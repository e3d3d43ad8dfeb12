"""What comes before the program: its preload files, and the import of a function of one's own.

What goes wrong here is the user's to mend, and says nothing of torch.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnfuzz.actors.child import exceptions
from attnfuzz.actors.child.outcomes import Data, NotRun
from attnfuzz.actors.child.phases import Phases
from attnfuzz.actors.child.program_module import execute_file

LONGEST = 500
"""Characters of an exception's text that are kept."""


def set_up(settings: Data, phases: Phases) -> None:
    """Executes the job's preload files, then imports its function. Raises `NotRun`."""
    sys.dont_write_bytecode = True
    for path in settings.get("preload") or ():
        what = f"preload file {path}"
        phases.set_up(what)
        with _as_not_run(what, path):
            execute_file(Path(path), Path(path).stem)
    if settings.get("function"):
        what = f"kernel.target: {settings['function']}"
        phases.set_up(what)
        with _as_not_run(what, None):
            _find(settings["function"], what)


def _find(target: str, what: str) -> None:
    module, _, name = target.partition(":")
    found = importlib.import_module(module)
    if not hasattr(found, name):
        where = getattr(found, "__file__", None)
        raise NotRun(f"{what}: the module {module}{f' ({where})' if where else ''} has no {name}")
    if not callable(getattr(found, name)):
        kind = type(getattr(found, name)).__name__
        raise NotRun(f"{what}: expected a function, got one of type {kind}")


@contextmanager
def _as_not_run(what: str, file: str | None) -> Iterator[None]:
    """Turns whatever is raised inside into `NotRun`: `what`, the line of `file`, the exception."""
    try:
        yield
    except NotRun:
        raise
    except BaseException as error:  # it may raise SystemExit too
        text = " ".join(exceptions.text_of(error).split())[:LONGEST]
        kind = exceptions.qualified_name(type(error))
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        line = f", line {lines[-1]}" if lines else ""
        raise NotRun(f"{what}{line}: {kind}{f': {text}' if text else ''}") from None
