"""Whether a run of an issue's script ended as the issue says."""

from __future__ import annotations

import re

from attnfuzz.corpus.signature import parted
from attnfuzz.corpus.volatile import mask_diagnosis, mask_volatile
from attnfuzz.fuzz.pool.tasks import ReproRun
from attnfuzz.fuzz.reduce.evaluate import reproduces
from attnfuzz.generators.model.outcome import Failure, Raised, said
from attnfuzz.generators.render.issue_script import IssueScript

COMPARED = 30
"""Characters of a masked message that must be found again."""

SEARCHED, LONGEST = 4000, 4000
"""The last lines of what a script wrote that are searched, and their longest."""


def shows(run: ReproRun, script: IssueScript, failure: Failure) -> bool:
    """Did `run` end as `failure` does? Where the process is to die, it may also live and find wrong
    numbers: what lies in memory decides that."""
    asserted = run.status == 1 and f"AssertionError: {script.message}" in run.stderr
    if failure.signal is not None or run.status is None or parted(failure):
        return reproduces(run, failure) or (script.way != "itself" and asserted)
    if failure.raised is not None:
        return asserted and reproduces(run, failure) and _says(run.stderr, failure.raised)
    return asserted


def _says(stderr: str, raised: Raised) -> bool:
    """Whether the exception's own words are in one of the lines."""
    message = said(raised.message)
    if "error: " in message:  # a C++ compiler's
        wanted = mask_diagnosis(message)
    else:
        words = re.sub(r"^\w+(?:Error|Exception): ", "", message)  # as `said` puts it
        wanted = mask_volatile(words.split("\n")[0])
    wanted = wanted[:COMPARED].strip()
    lines = stderr.splitlines()[-SEARCHED:]
    return any(wanted in mask_volatile(line) for line in lines if len(line) <= LONGEST)
