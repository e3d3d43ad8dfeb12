"""What a machine with the card said of a virtual finding: `confirmations.yaml` beside a case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corpus.case import CaseError
from corpus.files import write_atomically
from generators.codec import dump_yaml, load_yaml_safely, read_text
from generators.safe_yaml import ProgramError

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


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    target: str
    card: str
    torch: str
    verdict: Literal["confirmed", "refuted"]
    saw: str | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    confirmations: Annotated[list[_Entry], Field(max_length=1000)]


def read_confirmations(case: Path) -> list[Confirmation]:
    """Those beside the case in folder `case`. Raises CaseError, one sentence."""
    path = case / CONFIRMATIONS
    if not path.exists():
        return []
    try:
        data: Any = load_yaml_safely(read_text(path), str(path))
        told = _File.model_validate(data)
    except ProgramError as error:
        raise CaseError(str(error)) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CaseError(f"{path}: {key}: {first['msg']}.") from None
    return [Confirmation(**entry.model_dump()) for entry in told.confirmations]


def add_confirmation(case: Path, latest: Confirmation) -> None:
    """Records `latest`, in the place of an earlier one of that card and torch. Raises OSError, and
    CaseError where what is there cannot be read."""
    kept = [one for one in read_confirmations(case) if _where(one) != _where(latest)]
    write_atomically(case / CONFIRMATIONS, _text([*kept, latest]))


def _where(one: Confirmation) -> tuple[str, str, str]:
    return one.target, one.card, one.torch


def _text(confirmations: Iterable[Confirmation]) -> str:
    return dump_yaml({"confirmations": [asdict(one) for one in sorted(confirmations, key=_where)]})
