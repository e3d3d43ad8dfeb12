"""Known issues: records of what is public already. They label a bucket and lower its priority; they
never drop anything."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from attnfuzz.corpus.signature import exception_type
from attnfuzz.generators.kernels.registry import KINDS
from attnfuzz.generators.model.codec import load_yaml_safely
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Failure, FailureKind
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.complaints import complaint, mismatch
from attnfuzz.generators.reading.safe_yaml import ProgramError, read_text

SHIPPED = Path(__file__).with_name("known_issues.yaml")


class KnownIssueError(ValueError):
    """A file of known issues cannot be used; one sentence naming the file and the key."""


def _pattern(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python may read otherwise
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(mismatch("", "a regular expression", f"{text!r:.60}: {error}")) from None
    return text


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(mismatch("", "versions such as '>=2.6,<2.14'", repr(text))) from None
    return text


def _kernel(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(mismatch("", f"one of {', '.join(KINDS)}", repr(kind)))
    return kind


Pattern = Annotated[str, Field(max_length=1000), AfterValidator(_pattern)]
KernelKind = Annotated[str, AfterValidator(_kernel)]


class KnownIssue(BaseModel):
    """One record. A failure matches when everything that is given matches: its kind is one of
    `kinds`, `exception` is the innermost exception's unqualified type, `message` and `frame` are
    found in its message (without an
    exception: in its evidence) and in one of its frames ("file:function"), the kernel is one of
    `kernels`, torch's version is among `versions`, the target one of `targets`, and the program
    has every feature in `needs_features`. After `expires` it matches nothing, until somebody has
    looked whether it is still there. A record says something of the failure or of the program
    besides the kinds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=80)]
    link: Annotated[str, Field(pattern=r"^https://\S+$")]
    note: Annotated[str, Field(min_length=1)]
    kinds: Annotated[tuple[FailureKind, ...], Field(min_length=1)]
    exception: str | None = None
    message: Pattern | None = None
    frame: Pattern | None = None
    kernels: tuple[KernelKind, ...] = ()
    versions: Annotated[str, AfterValidator(_specifier)] = ""
    targets: tuple[str, ...] = ()
    needs_features: frozenset[str] = frozenset()
    expires: date | None = None


def load_known_issues(path: Path | str | None = None) -> tuple[KnownIssue, ...]:
    """The records in the YAML file at `path`; those shipped with the project by default. Raises
    KnownIssueError."""
    where = Path(path) if path is not None else SHIPPED
    try:
        data = load_yaml_safely(read_text(where), str(where))
    except ProgramError as error:
        raise KnownIssueError(str(error)) from None
    if not isinstance(data, list):
        raise KnownIssueError(mismatch(where, "a list of known issues"))
    issues = tuple(_issue(item, f"{where}: [{place}]") for place, item in enumerate(data))
    seen: set[str] = set()
    for issue in issues:
        if issue.id in seen:
            raise KnownIssueError(f"{where}: id: {issue.id} stands there twice")
        seen.add(issue.id)
    return issues


def _issue(data: Any, where: str) -> KnownIssue:
    try:
        issue = KnownIssue.model_validate(data)
    except ValidationError as error:
        raise KnownIssueError(f"{where}: {complaint(error, data, KnownIssue)}") from None
    if not (issue.exception or issue.message or issue.frame or issue.needs_features):
        expected = "one of exception, message, frame and needs_features"
        raise KnownIssueError(mismatch(f"{where}: {issue.id}", expected))
    return issue


@cache
def _shipped() -> tuple[KnownIssue, ...]:
    return load_known_issues()


def thread_of(label: str | None) -> str | None:
    """The public thread of the shipped record whose id ends `label`, a bucket's: "pytorch-139548",
    "shipped: 2509ab44, pytorch-139548"."""
    words = (label or "").split()[-1:]
    return next((issue.link for issue in _shipped() if [issue.id] == words), None)


def known_as(label: str | None) -> str | None:
    """The id of the bucket that a bucket with that label is known as: 2509ab44 of "shipped:
    2509ab44, pytorch-139548". None where no case is known of it."""
    found = re.match(r"(?:shipped|corpus): ([0-9a-f]+)(?:,|$)", label or "")
    return found[1] if found else None


def match(
    failure: Failure,
    program: Program,
    environment: Mapping[str, str],
    issues: Iterable[KnownIssue] | None = None,
    *,
    today: date | None = None,
) -> KnownIssue | None:
    """The first of `issues` (those shipped, by default) that `failure` of `program` is. The
    environment's "torch" is the version, its "target" the target ("cpu" where it is missing)."""
    today = today or date.today()
    given = _shipped() if issues is None else issues
    return next((one for one in given if _matches(one, failure, program, environment, today)), None)


def _matches(
    issue: KnownIssue,
    failure: Failure,
    program: Program,
    environment: Mapping[str, str],
    today: date,
) -> bool:
    place = environment.get("target", "cpu")
    return (
        failure.kind in issue.kinds
        and (issue.expires is None or today <= issue.expires)
        and (not issue.kernels or program.kernel.kind in issue.kernels)
        and (not issue.targets or place in issue.targets)
        and _is_version(issue.versions, environment.get("torch"))
        and _raises(issue, failure)
        and issue.needs_features <= features(program)
    )


def _raises(issue: KnownIssue, failure: Failure) -> bool:
    raised = failure.raised
    frames = [f"{frame.file}:{frame.function}" for frame in (raised.frames if raised else ())]
    return (
        (
            issue.exception is None
            or raised is not None
            and issue.exception == exception_type(raised)
        )
        and (issue.message is None or _says(issue.message, failure))
        and (issue.frame is None or any(re.search(issue.frame, frame) for frame in frames))
    )


def _says(pattern: str, failure: Failure) -> bool:
    """Is it in the exception's message, or where there is none, in what was gathered?"""
    raised = failure.raised
    texts = [raised.message] if raised else [*failure.evidence.values()]
    return any(re.search(pattern, text) for text in texts)


def _is_version(specifier: str, version: str | None) -> bool:
    """An unknown version is any version: labelling too much is better than too little here."""
    if not specifier or version is None:
        return True
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True
