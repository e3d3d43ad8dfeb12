"""A program that somebody minimized by hand becomes a case of a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from attnfuzz.actors.sandbox.job import Deadlines, launched_ranks_of
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.scripts import run_repro
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Tried, new_bucket, wrong_outputs
from attnfuzz.corpus.case import Case, Preload, write_bucket, write_case
from attnfuzz.corpus.known_issues import load_known_issues, match
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.adopt import Adopted, adopt
from attnfuzz.fuzz.campaign.save_case import portable
from attnfuzz.fuzz.pool.tasks import ReproTask
from attnfuzz.fuzz.reduce.deadlines import repro_timeout
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.fuzz.reduce.validate import Validate
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features

RUNS = 3
"""Of the script in clean processes, as a campaign does by default."""


def keep(
    finding: Finding,
    script: str,
    corpus: Path,
    *,
    most: int,
    python: str,
    environment: Mapping[str, str],
    preload: Sequence[Path],
) -> Adopted:
    """Takes a minimized `finding`, whose `repro.py` is `script`, into `corpus`: as a case of the
    bucket there that explains it, or of a new one, at most `most` a bucket. `environment` is the
    toolchain's, `python` its interpreter. Raises what `adopt` does."""
    target = TARGETS[finding.target]
    here = target.environment(environment)
    program, failure = finding.best, finding.failure
    record = match(failure, program, here, load_known_issues())
    bucket = new_bucket(
        signature(failure, program),
        failure,
        features(program),
        known_issue=record.id if record else None,
        outputs=wrong_outputs(finding.original_failure),
    )
    with Scratch.create() as scratch:
        if target.script_runs_here(program):
            tried = _tried(finding, script, python, scratch.root, preload)
            bucket = replace(bucket, tried={program_id(program): tried})
        case = Case(
            program=program,
            failure=replace(failure, evidence=portable(failure.evidence)),
            environment=here,
            original=program_id(finding.program),
            minimized=finding.simplified,
            runs=finding.runs,
            failures=finding.failed,
            preload=tuple(Preload.of(path) for path in preload),
            repro=script,
        )
        made = scratch.root / "corpus"
        write_bucket(made, bucket)
        write_case(made, bucket, case)
        return adopt(made, corpus, most, date.today())


def _tried(
    finding: Finding, script: str, python: str, folder: Path, preload: Sequence[Path]
) -> Tried:
    """How the script does by itself."""
    timeout = repro_timeout(finding.failure, Deadlines())
    files = tuple(str(path) for path in preload)
    ranks = launched_ranks_of(finding.best)
    task = ReproTask(script, python, str(folder), RUNS, timeout, None, files, ranks)
    stage = Validate(task, finding.failure)
    while isinstance(one := stage.next_task(), ReproTask):
        stage.report(one, run_repro(one))
    return Tried(runs=stage.runs, reproduced=stage.reproduced)
