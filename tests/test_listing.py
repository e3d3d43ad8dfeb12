"""What is listed of a campaign is what its store has, a page at a time."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.severity import severity
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store import listing
from attnfuzz.corpus.store.listing import Wanted
from attnfuzz.corpus.store.progress import progress_of
from attnfuzz.corpus.store.store import DATABASE, State, Store, StoreError
from attnfuzz.fuzz.dashboard.queries import found
from attnfuzz.fuzz.dashboard.sources import sources
from attnfuzz.fuzz.report import findings
from attnfuzz.fuzz.report.campaign_rows import apart, rows, with_files
from attnfuzz.fuzz.report.pages import page
from attnfuzz.fuzz.report.tables import row_json
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import Input
from tests.support.recorded_campaign import moment, record_campaign
from tests.support.shard_reports import Report, program, wrong

ODD = ((2, Input()), (3, Input(values="inf")))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_campaign(tmp_path_factory.mktemp("campaign"))


def failures(
    store: Store, wanted: Wanted | None = None, offset: int = 0, limit: int = 100
) -> list[int]:
    page = store.read(
        partial(listing.failures, wanted=wanted or Wanted(), offset=offset, limit=limit)
    )
    assert page.total >= len(page.rows)
    return [row.number for row in page.rows]


def test_a_list_of_buckets_is_that_of_triage(campaign: Path) -> None:
    (source,) = sources([campaign])
    with Store(campaign, create=False) as store:
        told = findings.campaign_json(store, campaign)
    listed = found(source)
    source.close()
    assert list(map(row_json, with_files(listed.rows, source.corpus))) == told["buckets"]
    assert list(map(row_json, listed.apart)) == told["apart"]


def test_what_is_listed_of_severity_is_that_of_the_programs(campaign: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(campaign, older)
    with sqlite3.connect(older / DATABASE) as database:
        database.execute("DROP TABLE severities")
        database.execute("PRAGMA user_version=4")
    other_rules = tmp_path / "other"
    shutil.copytree(campaign, other_rules)
    with sqlite3.connect(other_rules / DATABASE) as database:
        database.execute("UPDATE severities SET score=1, rules=rules-1")
    for directory in (campaign, older, other_rules):
        with Store(directory, create=False) as store:
            for row in rows(store, directory):
                shown = page(directory, row.id).severity
                assert (row.severity, row.strangeness) == (shown.score, shown.strangeness)
            others, left_out = apart(store)
            assert len(others) == 2 and left_out == 0
            for row in others:
                shown = page(directory, row.id).severity
                assert (row.severity, row.strangeness) == (shown.score, shown.strangeness)
            assert apart(store, most=1) == (others[:1], 1)


def test_a_bucket_is_as_bad_as_the_worst_of_what_was_minimized(tmp_path: Path) -> None:
    outcome, ordinary = wrong(), program(1)
    odd, odder = (replace(program(n), q=Input(dtype="float64"), k=k) for n, k in ODD)
    assert outcome.failure is not None
    key, met = signature(outcome.failure, odd), features(odd)
    bucket = new_bucket(key, outcome.failure, met)
    with Store(tmp_path) as store:
        for each, state in ((odd, State.DONE), (ordinary, State.NEW), (odder, State.MINIMIZED)):
            row = store.add_failure(each, outcome)
            assert row is not None
            best = None if state is State.NEW else (each, outcome)
            store.update_failure(row.program_id, state, bucket=bucket, best=best)
        (listed,) = rows(store, tmp_path)
        assert listed.severity == severity(outcome.failure, odd).score
        store.update_failure(program_id(odder), State.DONE, best=(ordinary, outcome))
        (listed,) = rows(store, tmp_path)
        assert listed.severity == severity(outcome.failure, ordinary).score


def test_failures_come_newest_first_a_page_at_a_time(campaign: Path) -> None:
    with Store(campaign, create=False) as store:
        numbers = failures(store)
        assert numbers == sorted(numbers, reverse=True) and len(numbers) == 8
        assert failures(store, limit=3) == numbers[:3]
        assert failures(store, offset=6, limit=3) == numbers[6:]
        assert failures(store, offset=600) == []


def test_failures_are_selected_by_kind_state_and_bucket(campaign: Path) -> None:
    with Store(campaign, create=False) as store:
        every = store.failures()
        for kind in ("wrong_result", "compile_error", "crash"):
            expected = {row.number for row in every if row.strong.startswith(f"{kind}-")}
            assert set(failures(store, Wanted(kind=kind))) == expected
        flaky = [row.number for row in every if row.state is State.FLAKY]
        assert failures(store, Wanted(state="flaky")) == flaky
        bucket = every[0].bucket
        assert bucket is not None and failures(store, Wanted(bucket=bucket)) == [every[0].number]
        assert failures(store, Wanted(bucket="' OR 1=1 --")) == []


def test_a_bucket_is_found_at_the_shard_that_met_it_first(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.record_shard(Report(0))
        store.record_shard(Report(2, failures=[(program(1), wrong())]))
        assert [one.index for one in store.read(listing.shards)] == [0, 2]
        assert store.read(listing.shards)[0].wall_s == 2.0
        assert store.read(listing.first_shards) == {}
        (group,) = store.read(listing.groups)
        assert (group.bucket, group.count, group.from_shards, group.first) == (None, 1, 1, 1)


def test_moments_are_kept_in_order(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for step in (0, 1, 2):
            store.record_progress(moment(step))
    with Store(tmp_path, create=False) as store:
        assert store.read(progress_of) == [moment(0), moment(1), moment(2)]


def test_what_an_older_campaign_lacks_is_not_missed(campaign: Path, tmp_path: Path) -> None:
    older = record_campaign(tmp_path / "older", count=2)
    with sqlite3.connect(older / DATABASE) as database:
        database.execute("DROP TABLE progress")
        database.execute("DROP INDEX ix_failures_listed")
        database.execute("PRAGMA user_version=3")
    with Store(older, create=False) as store:
        assert store.read(progress_of) == []
        assert len(failures(store)) == 4
    with Store(older) as store:  # whoever goes on with it adds what it lacks
        store.record_progress(moment(1))
        assert store.read(progress_of) == [moment(1)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE progress SET cpu='x'", "progress"),
        ("UPDATE shards SET report='{'", "damaged"),
        ("UPDATE failures SET target=x'00ff' || zeroblob(400)", "target"),
    ],
)
def test_a_row_that_is_tampered_with_is_named(tmp_path: Path, change: str, told: str) -> None:
    record_campaign(tmp_path, count=2)
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute(change)
    with Store(tmp_path, create=False) as store, pytest.raises(StoreError, match=told) as raised:
        store.read(progress_of)
        store.read(listing.shards)
        failures(store)
    assert "\n" not in str(raised.value)
