"""What each file of a corpus may say: types, names, sizes; `store.rows` has the same of a database.

Nothing is taken from a stranger's file but through one of these. What becomes a path, an id or a
file's name, has a pattern without slashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from attnfuzz.generators.reading.complaints import complaint
from attnfuzz.generators.reading.files import ProgramError

Hex = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]+$", max_length=64)]
ProgramId = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Slug = Annotated[str, Field(strict=True, pattern=r"^[\w.-]*$", max_length=100)]
FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*\.py$", max_length=100)]
Text = Annotated[str, Field(strict=True, max_length=300)]
Line = Annotated[str, Field(strict=True, max_length=2000)]
Count = Annotated[int, Field(strict=True, ge=0, le=10**9)]
Texts = Annotated[list[Text], Field(strict=True, max_length=1000)]
Data = dict[str, Any]

Environment = Annotated[dict[Text, Line], Field(max_length=200)]
"""Of versions and the machine: what each is called, and what it is."""


def read_as(written: Any, made: Callable[[Any], Any]) -> GetPydanticSchema:
    """For a type that a file has as `written`, from which `made` makes it."""

    def schema(_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(made, handler.generate_schema(written))

    return GetPydanticSchema(schema)


class Model(BaseModel):
    """Types as they are written, and no keys besides."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PreloadFile(Model):
    """A file in a case's folder `preload`."""

    name: FileName
    sha256: Sha256


class FailureFile(Model):
    """`failure.yaml`; `failure` itself is the outcome's, and checked as one."""

    strong: Text
    original: Hex
    minimized: bool
    runs: Count
    failures: Count
    preload: Annotated[list[PreloadFile], Field(max_length=100)] = []
    failure: Data


class ConfirmationEntry(Model):
    """One entry of `confirmations.yaml`."""

    target: Text
    card: Text
    torch: Text
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


Checked = TypeVar("Checked", bound=BaseModel)
Read = TypeVar("Read")

_ENVIRONMENT: TypeAdapter[dict[str, str]] = TypeAdapter(Environment, config={"strict": True})


def checked(model: type[Checked], data: Any, where: str) -> Checked:
    """`data` as `model`. Raises ProgramError, "where: key: expected …, got …"."""
    return validated(TypeAdapter(model), data, where)


def checked_environment(data: Any, where: str) -> dict[str, str]:
    """The environment that `data` is. Raises ProgramError."""
    return validated(_ENVIRONMENT, data, where)


def validated(adapter: TypeAdapter[Read], data: Any, where: str) -> Read:
    """What `adapter` makes of `data`. Raises ProgramError, "where: key: expected …, got …"."""
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        raise ProgramError(f"{where}: {complaint(error, data)}") from None
