"""The scripts of a bucket: the shortest, and how often they failed by themselves."""

from __future__ import annotations

from pathlib import Path

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import REPRO, case_folders
from attnfuzz.generators.reading.files import is_there, read_inside


def script_runs(bucket: Bucket) -> str | None:
    """How often a bucket's scripts failed by themselves in a clean process: "3/3"."""
    tried = list(bucket.tried.values())
    if not tried:
        return None
    best = max(tried, key=lambda one: (one.reproduced, -one.runs))
    return f"{best.reproduced}/{best.runs}"


def smallest_script(folder: Path) -> str | None:
    """The text of the shortest `repro.py` among the cases in a bucket's folder. Raises
    ProgramError."""
    cases = [case for case in case_folders(folder) if is_there(case / REPRO)]
    return min((read_inside(case, REPRO) for case in cases), key=line_count, default=None)


def line_count(text: str) -> int:
    """Lines of a text."""
    return len(text.splitlines())
