"""The store: each event once, whole, and there after a SIGKILL; a full disk damages nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.shard import Shard, ShardReport
from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.defects import defects
from attnfuzz.corpus.store.store import DATABASE, State, Store, StoreError
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from tests.support.shard_reports import Report, program, wrong

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_new_failure_is_given_once_and_kept(store: Store) -> None:
    report = Report(0, failures=[(program(1), wrong()), (program(2), wrong())])
    rows = store.record_shard(report)
    assert [row.program for row in rows] == [program(1), program(2)]
    assert [row.number for row in rows] == [1, 2]
    assert rows[0].state is State.NEW and rows[0].pending and rows[0].shard == 0
    assert rows[0].strong == signature(wrong().failure, program(1)).strong  # type: ignore[arg-type]
    assert Store(store.path).pending() == rows


def test_a_shard_recorded_twice_changes_nothing(store: Store) -> None:
    report = Report(0, failures=[(program(1), wrong())], by_key={"k": 1})
    store.record_shard(report)
    before = store.totals(), store.failures()
    assert store.record_shard(report) == []
    assert (store.totals(), store.failures()) == before


def test_a_program_that_fails_in_two_shards_is_one_failure(store: Store) -> None:
    store.record_shard(Report(0, failures=[(program(1), wrong())]))
    rows = store.record_shard(Report(1, failures=[(program(1), wrong()), (program(2), wrong())]))
    assert [row.program for row in rows] == [program(2)]
    assert store.totals().shards == 2


def test_defects_are_told_by_shard(store: Store) -> None:
    lost = ShardReport.of_lost(Shard(campaign_seed=1, index=1, size=8), "the worker died")
    ours = ShardReport(index=2, defects=(("0123456789ab", "kernel: {}\n\nKeyError: 'mask'"),))
    store.record_shards([Report(0), ours, lost])
    assert store.read(defects) == [
        "shard 1, program unknown\n\nthe worker died",
        "shard 2, program 0123456789ab\n\nkernel: {}\n\nKeyError: 'mask'",
    ]


def test_a_failure_met_outside_a_shard_is_recorded_once(store: Store) -> None:
    row = store.add_failure(program(1), wrong())
    assert row is not None and row.shard is None
    assert store.add_failure(program(1), wrong("dq")) is None
    with pytest.raises(ValueError, match="failure"):
        store.add_failure(program(2), Outcome(status="passed"))


def test_it_knows_which_shards_are_done(store: Store) -> None:
    assert store.shard_indices() == []
    for index in (3, 0, 1):
        store.record_shard(Report(index))
    assert store.shard_indices() == Store(store.path).shard_indices() == [0, 1, 3]


def test_totals_add_up(store: Store) -> None:
    store.record_shard(Report(0, by_key={"a": 2}, rejections={"why": 3}, features={"f": 1}))
    store.record_shard(Report(1, by_key={"a": 1, "b": 1}, features={"f": 4, "g": 1}))
    totals = store.totals()
    assert (totals.shards, totals.executed) == (2, 20)
    assert totals.by_status == {"passed": 18, "failed": 2}
    assert totals.by_key == {"a": 3, "b": 1}
    assert totals.rejections == {"why": 3}
    assert totals.features == {"f": 5, "g": 1}
    assert (totals.cpu_s, totals.wall_s, totals.harness_cpu_s) == (3.0, 4.0, 0.5)


def test_a_failures_way_through_its_states(store: Store) -> None:
    store.record_shard(Report(0, failures=[(program(7), wrong())]))
    name = program_id(program(7))
    store.update_failure(name, State.CONFIRMED, runs=5, failures=4)
    store.update_failure(name, State.MINIMIZING, best=(Program(), wrong("lse")), evaluated=12)
    row = Store(store.path).failure(name)
    assert row is not None
    assert (row.state, row.runs, row.failures, row.evaluated) == (State.MINIMIZING, 5, 4, 12)
    assert row.best == Program() and row.best_outcome == wrong("lse")
    assert row.program == program(7)

    failure = wrong().failure
    assert failure is not None
    bucket = new_bucket(signature(failure, Program()), failure, frozenset({"mask"}))
    store.update_failure(name, State.DONE, bucket=bucket)
    assert store.buckets() == [bucket] and store.bucket(bucket.id) == bucket
    assert store.failures(bucket=bucket.id)[0].program_id == name
    assert store.pending() == []
    assert store.states() == {State.DONE: 1}


@pytest.mark.parametrize("state", list(State))
def test_what_is_pending(store: Store, state: State) -> None:
    store.record_shard(Report(0, failures=[(program(1), wrong())]))
    store.update_failure(program_id(program(1)), state)
    ended = state in (State.FLAKY, State.DUPLICATE, State.DONE, State.SET_ASIDE)
    assert len(store.pending()) == (0 if ended else 1)
    assert len(store.failures(state=state)) == 1


def test_updating_a_failure_that_is_not_there_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="no failure of program 000000000000"):
        store.update_failure("000000000000", State.FLAKY)


def test_a_failure_may_turn_out_to_be_another(store: Store) -> None:
    store.record_shard(Report(0, failures=[(program(1), wrong())]))
    store.update_failure(program_id(program(1)), State.CONFIRMING)
    row = store.reassess(program_id(program(1)), wrong("dq"))
    failure = wrong("dq").failure
    assert failure is not None
    assert (row.state, row.outcome) == (State.NEW, wrong("dq"))
    assert row.strong == signature(failure, program(1)).strong
    assert store.pending() == [row]


def test_keys_of_older_rules_are_computed_afresh(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = wrong().failure
    assert failure is not None
    now = signature(failure, program(1))
    older = replace(now, strong="wrong_result-of-older-rules")
    bucket = new_bucket(older, failure, frozenset({"mask"}))
    with monkeypatch.context() as patched:
        patched.setattr("attnfuzz.corpus.store.store.signature", lambda *_: older)
        store.record_shard(Report(0, failures=[(program(1), wrong()), (program(2), wrong())]))
    best = (program(1), wrong())
    store.update_failure(program_id(program(1)), State.DONE, bucket=bucket, best=best)
    store.rekey()
    assert [row.strong for row in store.pending()] == [now.strong]
    assert store.buckets() == [replace(bucket, strong=now.strong)]


def test_occurrences_count_what_was_not_reported_in_full(store: Store) -> None:
    failure = wrong().failure
    assert failure is not None
    named = signature(failure, Program())
    store.record_shard(Report(0, failures=[(program(1), wrong())], by_key={named.strong: 40}))
    bucket = new_bucket(named, failure, frozenset())
    store.update_failure(program_id(program(1)), State.DONE, bucket=bucket)
    assert store.occurrences() == {bucket.id: 40}


def test_variants_are_kept_by_name(store: Store) -> None:
    store.save_variants("abc", {"layer=eager": "passes", "kernel=flex": "fails"})
    store.save_variants("abc", {"layer=eager": "flaky"})
    assert store.variants("abc") == {"kernel=flex": "fails", "layer=eager": "flaky"}
    assert store.variants("other") == {}


def test_a_campaign_goes_on_only_with_its_seed(store: Store) -> None:
    assert store.campaign() is None
    store.begin(7, {"minutes": 3}, {"torch": "2.13.0"})
    store.begin(7, {"minutes": 9}, {"torch": "2.13.0"})
    row = store.campaign()
    assert row is not None and row.seed == 7 and row.config == {"minutes": 9}
    with pytest.raises(StoreError, match="begun with seed 7, not 8"):
        store.begin(8, {}, {})


def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="found no such file"):
        Store(tmp_path / "none", create=False)
    noise = tmp_path / DATABASE
    noise.write_bytes(b"not a database, whatever its name says" * 100)
    with pytest.raises(StoreError, match="another file"):
        Store(noise)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path / "no" / "such" / "folder" / DATABASE)


def test_the_hardware_that_a_failure_was_found_on_is_kept(store: Store) -> None:
    (found,) = store.record_shard(Report(0, hardware="an H100", failures=[(program(1), wrong())]))
    other = store.add_failure(program(2), wrong(), hardware="")
    unknown = store.add_failure(program(3), wrong())
    assert other is not None and unknown is not None
    assert [found.hardware, other.hardware, unknown.hardware] == ["an H100", "", None]
    assert store.reassess(found.program_id, wrong("dq")).hardware == "an H100"
    assert store.environment(found)["hardware"] == "an H100"
    assert "hardware" not in store.environment(other)


def test_a_database_of_another_version_is_refused(store: Store) -> None:
    import sqlite3

    store.close()
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="version 6, got version 99"):
        Store(store.path)


WRITER = """
    import sys
    from attnfuzz.corpus.store.store import Store
    from tests.support.shard_reports import Report, program, wrong
    store = Store(sys.argv[1])
    start = len(store.shard_indices())
    print("ready", flush=True)
    for index in range(start, start + 10_000):
        rows = [(program(index * 2 + each), wrong()) for each in (0, 1)]
        store.record_shard(Report(index, failures=rows, by_key={"key": 2}))
        print(index, flush=True)
"""


def test_sigkill_at_any_instant_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    Store(tmp_path).close()
    acknowledged = -1
    for round_ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)],
            stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for _ in range(3 + round_):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        acknowledged = max([acknowledged, *map(int, rest)])
        writer.wait()
        store = Store(tmp_path)
        done = len(store.shard_indices())
        # What was being written at that instant may be there or not, but whole.
        assert done in (acknowledged + 1, acknowledged + 2)
        assert [row.program.seed for row in store.failures()] == list(range(2 * done))
        assert store.totals().by_key == {"key": 2 * done}
        store.close()


FILLER = """
    import resource, signal, sys
    from attnfuzz.corpus.store.store import Store, StoreError
    from tests.support.shard_reports import Report
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    store = Store(sys.argv[1])
    try:
        for index in range(1000):
            features = {f"feature {index} {n}": 1 for n in range(99)}
            store.record_shard(Report(index, features=features))
            print(index, flush=True)
    except StoreError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
"""


def test_a_full_disk_is_one_sentence_and_damages_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FILLER), str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "disk" in done.stderr and "what was saved before is whole" in done.stderr
    recorded = len(done.stdout.split())
    store = Store(tmp_path)
    assert len(store.shard_indices()) == store.totals().shards == recorded > 0
    store.record_shard(Report(recorded))
    assert store.shard_indices()[-1] == recorded
