"""Cases on disk: readable, diffable, safe to commit, and never executed.

A corpus is a folder of buckets, a bucket a folder of cases::

    <bucket-id>-<slug>/bucket.yaml
    <bucket-id>-<slug>/<case-id>/{program.yaml, repro.py, failure.yaml, environment.yaml}
    <bucket-id>-<slug>/<case-id>/preload/<name>.py

Reading validates everything, and does not touch `repro.py` but as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corpus.bucket import Bucket, bucket_from_data, bucket_to_data
from corpus.files import make_folder_atomically
from corpus.signature import signature
from generators.codec import (
    dump_program,
    dump_yaml,
    load_program,
    load_yaml_safely,
    outcome_from_data,
    outcome_to_data,
    program_id,
    read_text,
)
from generators.outcome import Failure, Outcome
from generators.program import Program
from generators.safe_yaml import ProgramError

PROGRAM, FAILURE, ENVIRONMENT, REPRO = (
    "program.yaml",
    "failure.yaml",
    "environment.yaml",
    "repro.py",
)
BUCKET = "bucket.yaml"
PRELOAD = "preload"


class CaseError(ValueError):
    """A case or bucket on disk cannot be used; one sentence naming the file and the key."""


@dataclass(frozen=True, kw_only=True)
class Preload:
    """A Python file that was loaded before the program: its name without folders, the sha256 (hex)
    of its text, and the text."""

    name: str
    sha256: str
    text: str

    @staticmethod
    def of(path: Path) -> Preload:
        """What is in the file at `path`. Raises OSError."""
        raw = path.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        return Preload(name=path.name, sha256=digest, text=raw.decode("utf-8"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failing program and what is known of it. `original` is the id of the program that was
    found; `program`, if `minimized`, is its simplest form. `runs` and `failures` count the fresh
    runs of the program that was found. `repro` is the text of its script."""

    program: Program
    failure: Failure
    environment: Mapping[str, str] = field(default_factory=dict)
    original: str = ""
    minimized: bool = False
    runs: int = 0
    failures: int = 0
    preload: tuple[Preload, ...] = ()
    repro: str = ""

    @property
    def id(self) -> str:
        """The case's name: its program's id."""
        return program_id(self.program)


def write_bucket(corpus: Path, bucket: Bucket) -> Path:
    """Write `bucket.yaml` into its folder in `corpus`; gives that folder. Raises OSError."""
    folder = bucket_folder(corpus, bucket)
    make_folder_atomically(folder, {BUCKET: dump_yaml(bucket_to_data(bucket))})
    return folder


def write_case(corpus: Path, bucket: Bucket, case: Case) -> Path:
    """Write the case into the bucket's folder in `corpus`; gives the case's folder. A case that is
    there already is written over, file by file. Raises OSError."""
    folder = bucket_folder(corpus, bucket) / case.id
    make_folder_atomically(folder, _files(case))
    return folder


def bucket_folder(corpus: Path, bucket: Bucket) -> Path:
    """Where the bucket lies in `corpus`: its id decides, as its title may have changed since."""
    found = sorted(corpus.glob(f"{bucket.id}-*")) if corpus.is_dir() else []
    return found[0] if found else corpus / bucket.folder


def _files(case: Case) -> dict[str, str]:
    failure = outcome_to_data(Outcome(status="failed", failure=case.failure))["failure"]
    told = {
        "strong": signature(case.failure, case.program).strong,
        "original": case.original or case.id,
        "minimized": case.minimized,
        "runs": case.runs,
        "failures": case.failures,
        "preload": [{"name": one.name, "sha256": one.sha256} for one in case.preload],
        "failure": failure,
    }
    return {
        PROGRAM: dump_program(case.program),
        REPRO: case.repro,
        FAILURE: dump_yaml(told),
        ENVIRONMENT: dump_yaml(dict(sorted(case.environment.items()))),
        **{f"{PRELOAD}/{one.name}": one.text for one in case.preload},
    }


Hex = Annotated[str, Field(pattern=r"^[0-9a-f]+$")]


class _PreloadFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(pattern=r"^[\w-]+\.py$")]
    sha256: Annotated[Hex, Field(min_length=64, max_length=64)]


class _FailureFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    strong: str
    original: Hex
    minimized: bool
    runs: Annotated[int, Field(ge=0)]
    failures: Annotated[int, Field(ge=0)]
    preload: list[_PreloadFile] = []
    failure: dict[str, Any]


class _EnvironmentFile(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str]


class _BucketFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    id: Hex
    slug: Annotated[str, Field(pattern=r"^[\w.-]*$")]
    title: str
    kind: str
    layer: str | None
    strong: str
    needs_trigger: bool
    trigger: list[str]
    sorts: list[str]
    outputs: list[str]
    aliases: list[str]
    known_issue: str | None
    notes: dict[str, Any] = {}


def read_case(folder: Path) -> Case:
    """The case in `folder`, everything in it checked; nothing in it is executed. Raises CaseError,
    one sentence that names the file and the key."""
    try:
        program = load_program(read_text(folder / PROGRAM), str(folder / PROGRAM))
        where = folder / FAILURE
        told = _checked(_FailureFile, where)
        failure = outcome_from_data({"status": "failed", "failure": told.failure}, str(where))
        environment = _checked(_EnvironmentFile, folder / ENVIRONMENT).__pydantic_extra__
        preload = tuple(_preload(folder, one) for one in told.preload)
        repro = read_text(folder / REPRO) if (folder / REPRO).exists() else ""
    except ProgramError as error:
        raise CaseError(str(error)) from None
    assert failure.failure is not None
    return Case(
        program=program,
        failure=failure.failure,
        environment=environment,
        original=told.original,
        minimized=told.minimized,
        runs=told.runs,
        failures=told.failures,
        preload=preload,
        repro=repro,
    )


def read_bucket(folder: Path) -> Bucket:
    """The bucket in `folder`. Raises CaseError."""
    try:
        return bucket_from_data(_checked(_BucketFile, folder / BUCKET).model_dump())
    except ProgramError as error:
        raise CaseError(str(error)) from None


def find_cases(paths: Iterable[Path]) -> list[Path]:
    """The folders of all cases at or below `paths` (a case, a file in one, a bucket, a corpus), in
    sorted order, each once. Raises CaseError for a path at which there is none."""
    found: set[Path] = set()
    for path in paths:
        if path.is_file() and path.name in (PROGRAM, FAILURE, ENVIRONMENT, REPRO):
            path = path.parent
        here = {below.parent for below in _visible(path)} if path.is_dir() else set()
        if not here:
            raise CaseError(f"{path}: expected a case (a folder with {PROGRAM}), found none")
        found |= here
    return sorted(found)


def _visible(path: Path) -> Iterable[Path]:
    """What a crash left unfinished begins with a dot, and is no case."""
    for below in path.rglob(PROGRAM):
        if not any(part.startswith(".") for part in below.relative_to(path).parts):
            yield below


Model = TypeVar("Model", bound=BaseModel)


def _checked(model: type[Model], where: Path) -> Model:
    data = load_yaml_safely(read_text(where), str(where))
    if not isinstance(data, dict):
        raise ProgramError(f"{where}: expected keys and values")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ProgramError(f"{where}: {key}: {_sentence(first)}") from None


def _sentence(error: Mapping[str, Any]) -> str:
    if error["type"] == "missing":
        return "expected a value, found none"
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    text: str = error["msg"]
    return f"{text[:1].lower()}{text[1:]}, got {error['input']!r:.80}"


def _preload(folder: Path, told: _PreloadFile) -> Preload:
    where = folder / PRELOAD / told.name
    text = read_text(where)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != told.sha256:
        raise ProgramError(f"{where}: expected the text with sha256 {told.sha256}, got {digest}")
    return Preload(name=told.name, sha256=digest, text=text)


def with_corpus(found: list[Bucket], corpora: Sequence[Path]) -> list[Bucket]:
    """`found`, and the buckets of `corpora` besides, labelled as known: what belongs to one of
    those is counted and not looked into again. The key of a bucket that was kept under older rules
    is computed afresh from its cases, as for a replay. Raises CaseError."""
    cases: dict[Path, list[Case]] = {}
    for folder in find_cases(corpora):
        cases.setdefault(folder.parent, []).append(read_case(folder))
    buckets = {bucket.id: bucket for bucket in found}
    for folder, kept in cases.items():
        bucket = read_bucket(folder)
        keys = [signature(case.failure, case.program).strong for case in kept]
        strong = bucket.strong if bucket.strong in keys else keys[0]
        label = bucket.known_issue or f"corpus {bucket.id}"
        buckets.setdefault(bucket.id, replace(bucket, strong=strong, known_issue=label))
    return list(buckets.values())
