"""A campaign's directory as one that has ended leaves it, made of shipped cases.

Every finding was met as another program than the one it was minimized to, so that the two can be
compared. A last failure is flaky, and one more is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import SHIPPED, Case, read_bucket, read_case, write_bucket, write_case
from attnfuzz.corpus.replays import Replays, add_replay
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.progress import Progress
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.fuzz.report.findings import CASES, case_folders
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import Cost, Outcome
from attnfuzz.generators.model.program import Program
from tests.support.shard_reports import Report, program, wrong

CASE, CRASH = "02951761", "4080b6d1"
"""Buckets of the campaign: wrong numbers, and an exception."""

TOOK = {"reference": 0.1, "eager": 0.2, "compile": 2.5, "forward": 0.4}
VARIANTS = {"layer=eager": "fails", "kernel=flex": "passes", "layer=inductor": "fails otherwise"}


def shipped(count: int) -> list[tuple[Bucket, Case]]:
    """Some shipped buckets, each with its first case."""
    chosen = [*SHIPPED.glob(f"{CASE}-*"), *SHIPPED.glob(f"{CRASH}-*"), *sorted(SHIPPED.iterdir())]
    folders = list(dict.fromkeys(folder for folder in chosen if folder.is_dir()))[:count]
    return [(read_bucket(folder), read_case(case_folders(folder)[0])) for folder in folders]


def found_as(simple: Program) -> Program:
    """The program that a finding minimized to `simple` was met as."""
    return replace(simple, seed=simple.seed + 7)


def record_campaign(directory: Path, count: int = 6, shards: int = 12) -> Path:
    """Writes it, with `count` buckets."""
    directory.mkdir(parents=True, exist_ok=True)
    findings = shipped(count)
    with Store(directory) as store:
        versions = {"torch": "2.13.0", "python": "3.11", "cpu": "a CPU"}
        store.begin(7, {"minutes": 60}, versions)
        for place, (bucket, case) in enumerate(findings):
            _record(store, directory, place, bucket, case)
        for index in range(len(findings), shards):
            store.record_shard(Report(index, features={"graph": 3}, rejections={"documented": 1}))
        for seed, state in ((101, State.FLAKY), (102, State.NEW)):
            row = store.add_failure(program(seed), wrong("dq"))
            assert row is not None
            store.update_failure(row.program_id, state, runs=5, failures=1)
        for step in range(6):
            store.record_progress(moment(step))
    note_replays(directory / CASES)
    return directory


def _record(store: Store, directory: Path, place: int, bucket: Bucket, case: Case) -> None:
    original, cost = found_as(case.program), Cost(wall_s=3.2, cpu_s=2.9, phases=TOOK)
    failed = Outcome(status="failed", failure=case.failure, cost=cost, features=("graph",))
    name = program_id(original)
    key = signature(case.failure, original).strong
    store.record_shard(Report(place, failures=[(original, failed)], by_key={key: 3}))
    store.update_failure(
        name,
        State.DONE,
        runs=5,
        failures=5,
        bucket=bucket,
        best=(case.program, failed),
        evaluated=9,
    )
    store.save_variants(name, VARIANTS)
    write_bucket(directory / CASES, bucket)
    write_case(directory / CASES, bucket, replace(case, original=name, minimized=True))


def moment(step: int, **changed: int) -> Progress:
    """What is written down `step` times ten seconds after the beginning."""
    counts: Mapping[str, int] = {
        "executed": 20 * step, "failed": step, "buckets": step, "pending": 2, "workers": 2,
        "busy": 1 + step % 2,
    } | changed  # fmt: skip
    seconds = 10.0 * step
    return Progress(
        at=1.8e9 + seconds, elapsed_s=seconds, cpu=0.9, finding_s=seconds,
        investigating_s=seconds / 2, **counts,
    )  # fmt: skip


def note_replays(corpus: Path) -> None:
    """Two replays, in the second of which one case is fixed."""
    ids = [case.name for folder in sorted(corpus.iterdir()) for case in case_folders(folder)]
    add_replay(corpus, Replays(at=1.8e9, torch="2.13.0", counts={"as_recorded": 6}, others={}))
    counts = {"as_recorded": len(ids) - 1, "fixed": 1}
    second = {"at": 1.81e9, "torch": "2.14.0", "counts": counts, "others": {ids[0]: "fixed"}}
    add_replay(corpus, Replays.model_validate(second))
