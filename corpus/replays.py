"""What became of a corpus whenever it was replayed: `replays.jsonl` in its folder, a line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.decisions.events import Outcome
from attnfuzz.corpus.files import locked, write_atomically
from attnfuzz.corpus.models import Count, Model, ProgramId, Text, checked
from attnfuzz.corpus.store.schema import loads
from attnfuzz.generators.reading.files import MAX_BYTES, ProgramError, is_there, read_inside

REPLAYS = "replays.jsonl"
KEPT = 1000
"""Replays of which the latest are kept."""

_Verdict = Outcome | Literal["not_run"]


class Replays(Model):
    """One replay of all cases: when (`at`, seconds since 1970), with which torch, how many cases
    had each verdict, and the verdict of each that did not fail as recorded, by its program's id."""

    at: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    torch: Text
    counts: dict[_Verdict, Count]
    others: dict[ProgramId, _Verdict]

    @property
    def cases(self) -> int:
        """How many cases there were."""
        return sum(self.counts.values())


def read_replays(corpus: Path) -> list[Replays]:
    """Those of the corpus, in the order they were written down. Raises CaseError, one sentence."""
    return [
        _read(line, f"{corpus / REPLAYS}: line {at}") for at, line in enumerate(_lines(corpus), 1)
    ]


def add_replay(corpus: Path, latest: Replays) -> None:
    """Writes one more down. Raises OSError, and CaseError where what is there cannot be read."""
    with locked(corpus):
        lines = [*_lines(corpus), json.dumps(latest.model_dump(mode="json"))][-KEPT:]
        while len(lines) > 1 and sum(map(len, lines)) + len(lines) > MAX_BYTES:
            del lines[0]
        write_atomically(corpus / REPLAYS, "".join(f"{line}\n" for line in lines))


def _lines(corpus: Path) -> list[str]:
    try:
        if not is_there(corpus / REPLAYS):
            return []
        return [line for line in read_inside(corpus, REPLAYS).splitlines() if line.strip()]
    except ProgramError as error:
        raise CaseError(str(error)) from None


def _read(line: str, where: str) -> Replays:
    try:
        return checked(Replays, loads(line), where)
    except ProgramError as error:
        raise CaseError(str(error)) from None
