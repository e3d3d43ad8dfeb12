"""Cases on disk: readable, diffable, safe to commit, and never executed.

A corpus is a folder of buckets, a bucket a folder of cases::

    <bucket-id>-<slug>/bucket.yaml
    <bucket-id>-<slug>/<case-id>/{program.yaml, repro.py, failure.yaml, environment.yaml}
    <bucket-id>-<slug>/<case-id>/preload/<name>.py
    <bucket-id>-<slug>/<case-id>/variants.yaml    once they have been run

Reading validates everything, and does not touch `repro.py` but as text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfuzz.corpus.bucket import Bucket, bucket_from_data, bucket_to_data
from attnfuzz.corpus.files import make_folder_atomically, write_atomically
from attnfuzz.corpus.models import (
    FailureFile,
    PreloadFile,
    VariantsFile,
    checked,
    checked_environment,
)
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.codec import (
    dump_program,
    dump_yaml,
    load_program,
    load_yaml_safely,
    outcome_from_data,
    outcome_to_data,
    program_id,
)
from attnfuzz.generators.model.outcome import Failure, Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import (
    ProgramError,
    folders,
    holding,
    is_there,
    read_inside,
    read_text,
)

PROGRAM, FAILURE, ENVIRONMENT, REPRO = (
    "program.yaml",
    "failure.yaml",
    "environment.yaml",
    "repro.py",
)
BUCKET = "bucket.yaml"
VARIANTS = "variants.yaml"
PRELOAD = "preload"

SHIPPED = Path(__file__).resolve().parent / "cases"
"""The corpus that is shipped with attnfuzz."""


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
        """What is in the file at `path`. Raises ProgramError."""
        text = read_text(path)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Preload(name=path.name, sha256=digest, text=text)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failing program and what is known of it. `original` is the id of the program that was
    found; `program`, if `minimized`, is its simplest form. `runs` and `failures` count the fresh
    runs of the program that was found. `repro` is the text of its script. `variants` says what
    variants of the program did, by name ("kernel=flex": "passes")."""

    program: Program
    failure: Failure
    environment: Mapping[str, str] = field(default_factory=dict)
    original: str = ""
    minimized: bool = False
    runs: int = 0
    failures: int = 0
    preload: tuple[Preload, ...] = ()
    repro: str = ""
    variants: Mapping[str, str] = field(default_factory=dict)

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
    make_folder_atomically(folder, case_files(case))
    return folder


def write_variants(
    corpus: Path, bucket: Bucket, program: Program, results: Mapping[str, str]
) -> None:
    """Write what the variants of `program` did beside its case, where the bucket has one in
    `corpus`. Raises OSError."""
    folder = bucket_folder(corpus, bucket) / program_id(program)
    if results and folder.is_dir():
        write_atomically(folder / VARIANTS, _variants_text(results))


def bucket_folder(corpus: Path, bucket: Bucket) -> Path:
    """Where the bucket lies in `corpus`: its id decides, as its title may have changed since."""
    there = folders(corpus) if is_there(corpus) else []
    return next(
        (one for one in there if one.name.startswith(f"{bucket.id}-")), corpus / bucket.folder
    )


def buckets_in(corpus: Path) -> dict[str, Path]:
    """The folders of the buckets in `corpus`, by their ids. Raises CaseError, for two of one id
    too."""
    found: dict[str, Path] = {}
    try:
        there = folders(corpus) if is_there(corpus) else []
        for folder in there:
            name = id_of(folder)
            if name and is_there(folder / BUCKET):
                if name in found:
                    raise ProgramError(f"{folder}: another folder has the same id: {found[name]}")
                found[name] = folder
    except ProgramError as error:
        raise CaseError(str(error)) from None
    return found


def id_of(bucket_folder: Path) -> str:
    """The id of the bucket in that folder, with which the folder's name begins."""
    found = re.match("([0-9a-f]{1,16})-", bucket_folder.name)
    return found[1] if found else ""


def case_folders(folder: Path) -> list[Path]:
    """The folders of the cases in a bucket's folder, sorted. Raises ProgramError."""
    there = folders(folder) if is_there(folder) else []
    return [case for case in there if is_there(case / PROGRAM)]


def case_files(case: Case) -> dict[str, str]:
    """The files of a case's folder, by their names."""
    failure = outcome_to_data(Outcome(status="failed", failure=case.failure))["failure"]
    entries = {
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
        FAILURE: dump_yaml(entries),
        ENVIRONMENT: dump_yaml(dict(sorted(case.environment.items()))),
        **{f"{PRELOAD}/{one.name}": one.text for one in case.preload},
        **({VARIANTS: _variants_text(case.variants)} if case.variants else {}),
    }


def _variants_text(results: Mapping[str, str]) -> str:
    return dump_yaml({"variants": dict(sorted(results.items()))})


def read_case(folder: Path) -> Case:
    """The case in `folder`, everything in it checked; nothing in it is executed. Raises CaseError,
    one sentence that names the file and the key."""
    try:
        program = load_program(read_inside(folder, PROGRAM), str(folder / PROGRAM))
        data, where = _yaml(folder, FAILURE)
        written = checked(FailureFile, data, where)
        failure = outcome_from_data({"status": "failed", "failure": written.failure}, where)
        environment = checked_environment(*_yaml(folder, ENVIRONMENT))
        preload = tuple(_preload(folder, one) for one in written.preload)
        repro = read_inside(folder, REPRO) if is_there(folder / REPRO) else ""
        variants = _variants(folder)
    except ProgramError as error:
        raise CaseError(str(error)) from None
    assert failure.failure is not None
    return Case(
        program=program,
        failure=failure.failure,
        environment=environment,
        original=written.original,
        minimized=written.minimized,
        runs=written.runs,
        failures=written.failures,
        preload=preload,
        repro=repro,
        variants=variants,
    )


def _variants(folder: Path) -> Mapping[str, str]:
    if not is_there(folder / VARIANTS):
        return {}
    return {**checked(VariantsFile, *_yaml(folder, VARIANTS)).variants}


def read_bucket(folder: Path) -> Bucket:
    """The bucket in `folder`. Raises CaseError."""
    try:
        return bucket_from_data(*_yaml(folder, BUCKET))
    except ProgramError as error:
        raise CaseError(str(error)) from None


def find_cases(paths: Iterable[Path]) -> list[Path]:
    """The folders of all cases at or below `paths` (a case, a file in one, a bucket, a corpus), in
    sorted order, each once. Raises CaseError for a path at which there is none."""
    found: set[Path] = set()
    for path in paths:
        if path.is_file() and path.name in (PROGRAM, FAILURE, ENVIRONMENT, REPRO):
            path = path.parent
        try:
            here = set(holding(path, PROGRAM)) if path.is_dir() else set()
        except ProgramError as error:
            raise CaseError(str(error)) from None
        if not here:
            raise CaseError(mismatch(path, f"a case (a folder with {PROGRAM})", "none"))
        found |= here
    return sorted(found)


def _yaml(folder: Path, name: str) -> tuple[Any, str]:
    """The data of a YAML file, and the file's name for errors."""
    where = str(folder / name)
    return load_yaml_safely(read_inside(folder, name), where), where


def _preload(folder: Path, entry: PreloadFile) -> Preload:
    name = f"{PRELOAD}/{entry.name}"
    text = read_inside(folder, name)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != entry.sha256:
        raise ProgramError(mismatch(folder / name, f"the text with sha256 {entry.sha256}", digest))
    return Preload(name=entry.name, sha256=digest, text=text)
