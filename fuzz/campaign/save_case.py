"""A minimized finding goes to disk: its script, its case, its bucket."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.targets.target import Target
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import Case, Preload, write_bucket, write_case, write_variants
from attnfuzz.fuzz.campaign.investigation import Investigation
from attnfuzz.generators.model.outcome import Failure
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro

CORPUS = "corpus"
_FOLDER = r"(?:(?<![\w.:/])|(?<=-[IL]))/(?:[^\s/\"':,]+/)"  # a compiler's -I and -L too
_FOLDERS = re.compile(rf"{_FOLDER}*site-packages/|{_FOLDER}+")


def script(
    investigation: Investigation, defects: list[str], *, by_value: bool = False
) -> tuple[str, bool]:
    """`repro.py` for a finding's simplest program, on its target; `by_value` as there. Where its
    renderer fails, which is our defect and goes to `defects`, the program's whole source, which
    does not run it. Then whether it is one that does."""
    program, target = investigation.finding.best, TARGETS[investigation.row.target]
    try:
        return script_for(program, investigation.failure, target, by_value=by_value), True
    except Exception:  # any defect of ours: the finding matters more
        defects.append(traceback.format_exc())
        return source(program, target.device, all_ranks=target.all_ranks), False


def script_for(
    program: Program, failure: Failure, target: Target, *, by_value: bool = False
) -> str:
    """The script that shows `failure` of `program` on `target`; `by_value` as in `repro`."""
    where = target.script_note(program)
    return repro(
        program,
        failure,
        by_value=by_value,
        device=target.device,
        all_ranks=target.all_ranks,
        where=where,
    )


def portable(evidence: Mapping[str, str]) -> dict[str, str]:
    """Evidence without the folders of the machine that it comes from: paths begin below
    site-packages, or are a file's name."""
    return {name: _FOLDERS.sub("", text) for name, text in evidence.items()}


def keep_bucket(directory: Path, bucket: Bucket) -> None:
    """Write what is known of the bucket now, where it has been kept before. Raises OSError."""
    if (directory / CORPUS / bucket.folder).is_dir():
        write_bucket(directory / CORPUS, bucket)


def keep(
    directory: Path,
    bucket: Bucket,
    investigation: Investigation,
    text: str,
    environment: Mapping[str, str],
    preload: Sequence[Path],
) -> None:
    """Write the bucket and the finding's case, whose script is `text`, under `directory`/corpus.

    Doing it twice leaves what doing it once does. Raises OSError.
    """
    failure = investigation.failure
    case = Case(
        program=investigation.finding.best,
        failure=replace(failure, evidence=portable(failure.evidence)),
        environment=environment,
        original=investigation.id,
        minimized=investigation.finding.simplified,
        runs=investigation.finding.runs,
        failures=investigation.finding.failed,
        preload=tuple(Preload.of(path) for path in preload),
        repro=text,
    )
    write_bucket(directory / CORPUS, bucket)
    write_case(directory / CORPUS, bucket, case)


def keep_variants(
    directory: Path, bucket: Bucket, program: Program, matrix: Mapping[str, str]
) -> None:
    """Write what the variants of `program` did beside its case. Raises OSError."""
    write_variants(directory / CORPUS, bucket, program, matrix)
