"""What people decide on the buckets of a corpus, from the command line and from a page."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from attnfuzz.corpus.case import id_of
from attnfuzz.corpus.decisions.deciding import VERDICTS, decide, verdict
from attnfuzz.corpus.decisions.events import Event
from attnfuzz.corpus.store.store import DATABASE
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.report.pages import bucket_folder_of
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import is_there


def folder_in(corpus: Path, bucket: str) -> Path:
    """The folder of the bucket of a corpus whose id begins with `bucket`. Raises UserError, for a
    campaign too."""
    if is_there(corpus / DATABASE):
        raise UserError(
            f"{mismatch('--corpus', 'a corpus', f'the campaign {corpus}')}: "
            f"attnfuzz adopt {corpus} --into CORPUS takes its buckets in"
        )
    return bucket_folder_of(corpus, bucket)


def decide_on(
    folder: Path, kind: str, what: str | None, *, looked_at: str | None = None, **given: str | None
) -> Event | None:
    """Writes down a decision of that kind on the bucket in `folder`. `what` is the other bucket for
    duplicate-of, and the version for fixed-in; `given` are url, why, until and by. None where it is
    decided already. Raises UserError, CaseError, ProgramError and OSError; see `decide` for
    `looked_at`."""
    if kind not in VERDICTS:
        raise UserError(mismatch("VERDICT", f"one of {', '.join(VERDICTS)}", repr(kind)))
    data: dict[str, Any] = dict(given)
    if kind == "duplicate-of" and what is not None:
        data["other"] = id_of(folder_in(folder.parent, what))
        if data["other"] == id_of(folder):
            raise UserError(mismatch(kind, "another bucket", "the same"))
    elif kind == "fixed-in":
        data["version"] = what
    elif what is not None:
        raise UserError(mismatch(kind, "no word after it", repr(what)))
    return decide(folder, verdict(kind, date.today(), **data), looked_at)
