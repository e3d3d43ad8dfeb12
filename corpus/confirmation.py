"""What a machine with the card showed of a virtual finding: `confirmations.yaml` beside a case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.files import write_atomically
from attnfuzz.corpus.models import ConfirmationsFile, checked
from attnfuzz.generators.model.codec import dump_yaml, load_yaml_safely
from attnfuzz.generators.reading.files import ProgramError, is_there, read_inside

CONFIRMATIONS = "confirmations.yaml"


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """One replay on a device: whether the case failed there as recorded, and if not, what it did
    instead (`saw`)."""

    target: str
    card: str
    torch: str
    verdict: Literal["confirmed", "refuted"]
    saw: str | None = None

    def __str__(self) -> str:
        """`refuted on NVIDIA H200 with torch 2.11.0: fixed`."""
        rest = f": {self.saw}" if self.saw else ""
        return f"{self.verdict} on {self.card} with torch {self.torch}{rest}"


def read_confirmations(case: Path) -> list[Confirmation]:
    """Those beside the case in folder `case`. Raises CaseError, one sentence."""
    path = case / CONFIRMATIONS
    try:
        if not is_there(path):
            return []
        data = load_yaml_safely(read_inside(case, CONFIRMATIONS), str(path))
        read = checked(ConfirmationsFile, data, str(path))
    except ProgramError as error:
        raise CaseError(str(error)) from None
    return [Confirmation(**entry.model_dump()) for entry in read.confirmations]


def confirmation_files(case: Path) -> dict[str, str]:
    """The file of those beside the case in folder `case`, if there are any: its name and text.
    Raises CaseError."""
    there = read_confirmations(case)
    return {CONFIRMATIONS: _text(there)} if there else {}


def add_confirmation(case: Path, latest: Confirmation) -> None:
    """Records `latest`, in the place of an earlier one of that card and torch. Raises OSError, and
    CaseError where what is there cannot be read."""
    kept = [one for one in read_confirmations(case) if _where(one) != _where(latest)]
    write_atomically(case / CONFIRMATIONS, _text([*kept, latest]))


def _where(one: Confirmation) -> tuple[str, str, str]:
    return one.target, one.card, one.torch


def _text(confirmations: Iterable[Confirmation]) -> str:
    return dump_yaml({"confirmations": [asdict(one) for one in sorted(confirmations, key=_where)]})
