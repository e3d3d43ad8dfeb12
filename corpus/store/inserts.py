"""How a failure and a bucket become rows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import insert

from attnfuzz.corpus.bucket import Bucket, bucket_to_data
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.rows import State
from attnfuzz.corpus.store.schema import BUCKETS, FAILURES, HARDWARE, upsert
from attnfuzz.corpus.store.severities import record_severity
from attnfuzz.generators.model.codec import outcome_to_data, program_id, to_data
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program


def insert_failure(
    connection: Connection,
    program: Program,
    outcome: Outcome,
    shard: int | None,
    target: str,
    hardware: str | None,
) -> int | None:
    """The number of the new row; None where the program has one already. Raises ValueError."""
    query = insert(FAILURES).values(
        program_id=program_id(program),
        program=to_data(program),
        shard=shard,
        target=target,
        **as_found(program, outcome),
    )
    number: int | None = connection.execute(
        query.on_conflict_do_nothing().returning(FAILURES.c.number)
    ).scalar_one_or_none()
    if number is not None and outcome.failure is not None:
        record_severity(connection, number, program, outcome.failure)
    if number is not None and hardware is not None:
        upsert(connection, HARDWARE, {"number": number, "hardware": hardware}, ("number",))
    return number


def as_found(program: Program, outcome: Outcome) -> dict[str, Any]:
    """What a row says of a failure that nothing has been done with. Raises ValueError."""
    if outcome.failure is None:
        raise ValueError("expected the outcome of a failure")
    return {
        "outcome": outcome_to_data(outcome),
        "strong": signature(outcome.failure, program).strong,
        "state": State.NEW.value,
    }


def put_bucket(connection: Connection, bucket: Bucket) -> None:
    """Writes the bucket, in the place of what was known of it."""
    values = {"id": bucket.id, "strong": bucket.strong, "data": bucket_to_data(bucket)}
    upsert(connection, BUCKETS, values, ("id",))
