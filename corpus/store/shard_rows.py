"""How a shard's report becomes a row, sums, and rows of failures."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import insert

from attnfuzz.corpus.store.inserts import insert_failure
from attnfuzz.corpus.store.rows import KNOWN_CAUSES, NEW_PROGRAMS, Report
from attnfuzz.corpus.store.schema import SHARDS, add_counts
from attnfuzz.generators.model.codec import to_data

TIMES = ("cpu_s", "wall_s", "harness_cpu_s", "predicted_cpu_s")


def insert_shard(connection: Connection, report: Report) -> list[int]:
    """Records a shard and gives the numbers of the failures that are new, in the report's order. A
    shard recorded before changes nothing and gives nothing."""
    values = {"index": report.index, "executed": report.executed, "report": _plain(report)}
    added = connection.execute(insert(SHARDS).values(values).on_conflict_do_nothing())
    if added.rowcount == 0:
        return []
    add_counts(connection, "sum", {"shards": 1, "executed": report.executed})
    add_counts(connection, "sum", {name: getattr(report, name) for name in TIMES})
    programs = report.cpu_s + report.harness_cpu_s - report.known_cpu_s
    add_counts(connection, "cpu", {NEW_PROGRAMS: programs, KNOWN_CAUSES: report.known_cpu_s})
    add_counts(connection, "status", report.counts)
    add_counts(connection, "key", report.by_key)
    add_counts(connection, "rejection", report.rejections)
    add_counts(connection, "feature", report.features)
    found = [
        insert_failure(connection, program, outcome, report.index, report.target, report.hardware)
        for program, outcome in report.failures
    ]
    return [number for number in found if number is not None]


def _plain(report: Report) -> dict[str, Any]:
    """Everything in the report but the failures, which have rows of their own, and the features,
    most of it by far, of which the sums are kept."""
    elsewhere = ("failures", "features")
    data = {name: value for name, value in sorted(vars(report).items()) if name not in elsewhere}
    kept = [{"program": to_data(one.program), "shows": list(one.shows)} for one in report.kept]
    programs = {name: [*map(to_data, data[name])] for name in ("stopped", "parents")}
    return data | programs | {"kept": kept}
