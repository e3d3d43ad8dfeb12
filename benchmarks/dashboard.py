"""How long the pages of a large campaign take: `python benchmarks/dashboard.py`.

Writes a campaign of 2,000 buckets and 100,000 failing programs (shipped cases, each again with
other seeds and under other keys), serves it in this process, and asks for each page three times: of
a campaign that has just changed, then twice of one that has not. Prints seconds by the clock, and
behind a stroke the CPU seconds, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from starlette.testclient import TestClient

from attnfuzz.corpus.bucket import Bucket, bucket_to_data
from attnfuzz.corpus.case import SHIPPED, Case, read_bucket, read_case
from attnfuzz.corpus.store.opening import Writing
from attnfuzz.corpus.store.schema import BUCKETS, FAILURES, SEVERITIES, SHARDS, transaction
from attnfuzz.corpus.store.severities import scored, severity_row
from attnfuzz.corpus.store.store import DATABASE, State, Store
from attnfuzz.fuzz.dashboard.server import application
from attnfuzz.fuzz.dashboard.sources import sources
from attnfuzz.fuzz.report.findings import case_folders
from attnfuzz.generators.model.codec import outcome_to_data, program_id, to_data
from attnfuzz.generators.model.outcome import Outcome

AT_ONCE = 5000
PAGES = {
    "campaign": "/0/",
    "buckets, worst first": "/0/buckets",
    "buckets, filtered and sorted": "/0/buckets?kind=wrong_result&sort=by+title&page=2",
    "programs": "/0/programs",
    "programs, a late page": "/0/programs?page=900",
    "programs of one kind": "/0/programs?kind=compile_error",
}


def write(directory: Path, buckets: int, failures: int, shards: int) -> str:
    """Writes the campaign, and gives the id of one bucket."""
    with Store(directory) as store:
        store.begin(1, {}, {"torch": "2.13.0"})
    made, cases = list(_buckets(buckets)), _cases()
    opened = Writing(directory / DATABASE)
    with transaction(opened.engine, directory, writes=True) as connection:
        data = [{"id": one.id, "strong": one.strong, "data": bucket_to_data(one)} for one in made]
        connection.execute(insert(BUCKETS), data)
        report = {"wall_s": 30.0, "cpu_s": 25.0, "harness_cpu_s": 1.0, "features": {"graph": 9}}
        rows = [{"index": at, "executed": 10, "report": report} for at in range(shards)]
        connection.execute(insert(SHARDS), rows)
        some: list[dict[str, Any]] = []
        for at in range(failures):
            some.append(_failure(at, made[at % buckets], cases[at % len(cases)], at % shards))
            if len(some) == AT_ONCE or at == failures - 1:
                connection.execute(insert(FAILURES), some)
                some.clear()
        bad = [scored(case.program, case.failure) for case in cases]
        scores = [severity_row(at + 1, bad[at % len(bad)]) for at in range(failures)]
        connection.execute(insert(SEVERITIES), scores)
    opened.close()
    return made[0].id


def _cases() -> list[Case]:
    folders = [one for one in sorted(SHIPPED.iterdir()) if one.is_dir()]
    return [read_case(case_folders(folder)[0]) for folder in folders]


def _buckets(count: int) -> Iterator[Bucket]:
    there = [read_bucket(one) for one in sorted(SHIPPED.iterdir()) if one.is_dir()]
    for at in range(count):
        one, name = there[at % len(there)], hashlib.sha256(str(at).encode()).hexdigest()[:10]
        yield replace(one, id=name[:8], strong=f"{one.kind}-{name}", title=f"{one.title} {at}")


def _failure(at: int, bucket: Bucket, case: Case, shard: int) -> dict[str, Any]:
    program = replace(case.program, seed=at)
    outcome = outcome_to_data(Outcome(status="failed", failure=case.failure))
    return {
        "program_id": program_id(program),
        "program": to_data(program),
        "outcome": outcome,
        "strong": bucket.strong,
        "shard": shard,
        "target": "cpu",
        "state": State.DONE.value,
        "runs": 5,
        "failures": 5,
        "bucket": bucket.id,
    }


def timed(client: TestClient, address: str) -> tuple[float, float]:
    """Seconds until the page is there, by the clock and of CPU time."""
    began, spent = time.monotonic(), time.process_time()
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began, time.process_time() - spent


def main() -> None:
    """Writes the campaign and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--buckets", type=int, default=2000)
    parser.add_argument("--failures", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attnfuzz-dashboard-") as folder:
        directory = Path(folder)
        name = write(directory, options.buckets, options.failures, options.shards)
        size = (directory / DATABASE).stat().st_size / 2**20
        served = application(sources([directory]))
        pages = PAGES | {"a bucket": f"/0/buckets/{name}"}
        with TestClient(served, base_url="http://127.0.0.1") as client:
            client.get("/0/replays")  # templates and pictures are made once
            table = dict[str, list[tuple[float, float]]]()
            for what, at in pages.items():
                os.utime(directory / DATABASE)  # as if it had changed
                table[what] = [timed(client, at) for _ in range(3)]
    told = {"buckets": options.buckets, "failures": options.failures, "MiB": round(size)}
    where = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{json.dumps(told)} on {where}")
    for what, took in table.items():
        print(f"{what:32} {'  '.join(f'{wall:.2f}/{cpu:.2f}' for wall, cpu in took)}")


if __name__ == "__main__":
    main()
