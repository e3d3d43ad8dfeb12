"""What each file of a corpus, and each row of a campaign's database, may say: types, names, sizes.

Nothing is taken from a stranger's file but through one of these. What becomes a path, an id or a
file's name, has a pattern without slashes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from attnfuzz.generators.model.outcome import FailureKind, Layer
from attnfuzz.generators.reading.complaints import complaint
from attnfuzz.generators.reading.files import ProgramError

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]+$", max_length=64)]
ProgramId = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Slug = Annotated[str, Field(pattern=r"^[\w.-]*$", max_length=100)]
FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*\.py$", max_length=100)]
Word = Annotated[str, Field(max_length=300)]
Line = Annotated[str, Field(max_length=2000)]
Count = Annotated[int, Field(ge=0, le=10**9)]
Words = Annotated[list[Word], Field(max_length=1000)]
Data = dict[str, Any]

Environment = Annotated[dict[Word, Line], Field(max_length=200)]
"""Of versions and the machine: what each is called, and what it is."""


class Model(BaseModel):
    """Types as they are written, and no keys besides."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PreloadFile(Model):
    """A file in a case's folder `preload`."""

    name: FileName
    sha256: Sha256


class FailureFile(Model):
    """`failure.yaml`; `failure` itself is the outcome's, and checked as one."""

    strong: Word
    original: Hex
    minimized: bool
    runs: Count
    failures: Count
    preload: Annotated[list[PreloadFile], Field(max_length=100)] = []
    failure: Data


class Tried(Model):
    """How often a script was run in a clean process, and failed there as it should."""

    runs: Count
    reproduced: Count


class Notes(Model):
    """What is noted of a bucket: of its programs' scripts, by the program's id."""

    repro: Annotated[dict[Hex, Tried], Field(max_length=1000)] = {}


class BucketFile(Model):
    """`bucket.yaml`, and a bucket in the database."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]+$", max_length=16)]
    slug: Slug
    title: Line
    kind: Annotated[FailureKind, Field(strict=False)]
    layer: Annotated[Layer, Field(strict=False)] | None
    strong: Word
    needs_trigger: bool
    trigger: Words
    sorts: Words
    outputs: Words
    aliases: Words
    known_issue: Word | None
    notes: Notes = Notes()


class ConfirmationEntry(Model):
    """One entry of `confirmations.yaml`."""

    target: Word
    card: Word
    torch: Word
    verdict: Literal["confirmed", "refuted"]
    saw: Line | None = None


class ConfirmationsFile(Model):
    """`confirmations.yaml`."""

    confirmations: Annotated[list[ConfirmationEntry], Field(max_length=1000)]


VariantName = Annotated[str, Field(pattern=r"^[a-z]+=[A-Za-z0-9_.-]+$", max_length=80)]
VariantResult = Literal["fails", "fails otherwise", "passes", "rejects", "flaky", "not judged"]


class VariantsFile(Model):
    """`variants.yaml`: what each variant of a case's program did."""

    variants: Annotated[dict[VariantName, VariantResult], Field(max_length=1000)]


class CampaignRow(Model):
    """The one row of the table `campaign`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)]
    config: Data
    versions: Environment


class CountRow(Model):
    """A row of `counts`."""

    sort: Word
    name: Line
    value: Annotated[int | float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class FailureRow(Model):
    """A row of `failures`; programs and outcomes are checked as such."""

    number: Count
    program_id: ProgramId
    program: Data
    outcome: Data
    strong: Word
    shard: Count | None
    target: Word
    state: Literal[
        "new", "confirming", "confirmed", "minimizing", "minimized", "flaky", "duplicate", "done"
    ]
    runs: Count
    failures: Count
    bucket: Hex | None
    best: Data | None
    best_outcome: Data | None
    evaluated: Count


class VariantRow(Model):
    """A row of `variants`."""

    name: VariantName
    result: VariantResult


class EnvironmentRow(Model):
    """A row of `environments`."""

    first: Count
    versions: Environment


Checked = TypeVar("Checked", bound=BaseModel)

_ENVIRONMENT: TypeAdapter[dict[str, str]] = TypeAdapter(Environment, config={"strict": True})


def checked(model: type[Checked], data: Any, where: str) -> Checked:
    """`data` as `model`. Raises ProgramError, "where: key: expected …, got …"."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ProgramError(f"{where}: {complaint(error, data)}") from None


def checked_environment(data: Any, where: str) -> dict[str, str]:
    """The environment that `data` is. Raises ProgramError."""
    try:
        return _ENVIRONMENT.validate_python(data)
    except ValidationError as error:
        raise ProgramError(f"{where}: {complaint(error, data)}") from None
