"""What a campaign tries again by itself of what is known, and what it says of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from attnfuzz.corpus.bucket import Bucket, new_bucket
from attnfuzz.corpus.case import Case, CaseError, case_folders, write_bucket, write_case
from attnfuzz.corpus.decisions.deciding import decide, verdict
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.observing import note_tried
from attnfuzz.corpus.retried import RETRIED, read_retried
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.campaign import retry as retry_module
from attnfuzz.fuzz.campaign.retry import EVERY, Retry
from attnfuzz.fuzz.pool.tasks import TaskFailed, WorkerDied
from attnfuzz.generators.kernels.specs import Function
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome
from attnfuzz.generators.model.program import Program
from tests.support.fake_campaign import CONFIG
from tests.support.fake_pool import PASSED, raised
from tests.support.one_bucket import PROGRAM, write_one

TODAY = date(2026, 11, 24)
TORCH = "2.15.0"


def anywhere(target: str) -> bool:
    """A pool with a free worker for any target."""
    return True


def write(corpus: Path, message: str, program: Program = PROGRAM, **failed: object) -> Bucket:
    failure = raised(message).failure
    assert failure is not None
    failure = replace(failure, **failed)  # type: ignore[arg-type]
    bucket = new_bucket(signature(failure, program), failure, features(program))
    write_bucket(corpus, bucket)
    write_case(corpus, bucket, Case(program=program, failure=failure, repro="# none\n"))
    return bucket


def started(directory: Path, on: date = TODAY, torch: str = TORCH) -> Retry:
    directory.mkdir(exist_ok=True)
    corpus = directory.parent / "corpus"
    return Retry(CONFIG.model_copy(update={"corpus": [corpus]}), directory, torch, on)


def due(made: Retry, met: frozenset[str] = frozenset()) -> list[str]:
    """The buckets that are tried again, in order."""
    found = []
    while (again := made.next_work(met, anywhere)) is not None:
        found.append(again.due.name)
    return list(dict.fromkeys(found))


def failed(failure: Failure) -> Outcome:
    return Outcome(status="failed", failure=failure)


def test_what_has_expired_comes_first_and_what_was_tried_lately_not_at_all(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    never, expired, fixed, lately, old = (
        write(corpus, f"{word} is broken") for word in ("one", "two", "three", "four", "five")
    )
    before = TODAY - timedelta(days=200)
    decide(corpus / expired.folder, verdict("not-a-bug", before, why="documented"))
    decide(corpus / fixed.folder, verdict("fixed-in", TODAY, version="2.14"))
    for bucket in (lately, old):
        (case,) = case_folders(corpus / bucket.folder)
        event = note_tried(corpus / bucket.folder, TORCH, {case.name: "as_recorded"}, None)
        assert event is not None
    seen = date.fromisoformat(history(corpus / lately.folder)[0].said.at[:10])
    assert due(started(tmp_path / "soon", seen + EVERY - timedelta(days=1)))[-1] == never.id
    order = due(started(tmp_path / "night", seen + EVERY + timedelta(days=400)))
    assert order[:3] == [expired.id, fixed.id, never.id]
    assert set(order[3:]) == {lately.id, old.id}
    assert lately.id in due(started(tmp_path / "other", seen, "2.16.0")), "another torch"


def test_what_the_campaign_has_met_is_not_tried_again(tmp_path: Path) -> None:
    one, other = (write(tmp_path / "corpus", f"{word} is broken") for word in ("one", "two"))
    assert due(started(tmp_path / "night"), frozenset({one.id})) == [other.id]


def test_a_night_tries_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write(tmp_path / "corpus", f"{'abcde'[number]} is broken")
    monkeypatch.setattr(retry_module, "MOST", 2)
    tried = [due(started(tmp_path / "night", TODAY + timedelta(days=day))) for day in range(12)]
    assert all(len(one) == 2 for one in tried)
    assert len({name for one in tried for name in one}) == 5, "others every night"


def test_what_came_of_it_is_written_down_and_not_done_twice(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    bucket = write_one(corpus, 1, 2)
    made = started(tmp_path / "night")
    first, second = made.next_work((), anywhere), made.next_work((), anywhere)
    assert first is not None and second is not None and made.next_work((), anywhere) is None
    made.report(first, [PASSED] * 3)
    assert read_retried(tmp_path / "night") is None, "a half-tried bucket says nothing"
    made.report(second, [PASSED] * 3)
    noted = read_retried(tmp_path / "night")
    assert noted is not None and noted.torch == TORCH
    one = noted.buckets[bucket.id]
    assert one.stopped and one.passes and set(one.outcomes.values()) == {"fixed"}
    assert not history(corpus / bucket.folder), "a campaign writes nothing into a corpus"
    assert due(started(tmp_path / "night")) == []


def test_what_still_fails_has_not_come_back_but_what_was_fixed_has(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    as_ever, fixed = (write(corpus, f"{word} is broken") for word in ("one", "two"))
    decide(corpus / fixed.folder, verdict("fixed-in", TODAY, version="2.14"))
    made = started(tmp_path / "night")
    while (again := made.next_work((), anywhere)) is not None:
        made.report(again, [failed(again.due.cases[again.case].failure)])
    noted = read_retried(tmp_path / "night")
    assert noted is not None
    assert not noted.buckets[as_ever.id].passes and noted.buckets[as_ever.id].came_back is None
    assert noted.buckets[fixed.id].came_back == "fixed in 2.14"


@pytest.mark.parametrize(
    "answer", [WorkerDied(3), TaskFailed("x"), [], [Outcome(status="lost", rejection="x")]]
)
def test_a_task_that_was_lost_says_nothing(tmp_path: Path, answer: object) -> None:
    write(tmp_path / "corpus", "it is broken")
    made = started(tmp_path / "night")
    again = made.next_work((), anywhere)
    assert again is not None
    made.report(again, answer)  # type: ignore[arg-type]
    assert read_retried(tmp_path / "night") is None and made.next_work((), anywhere) is None


@pytest.mark.parametrize(
    "text",
    ["[", "- 1", "buckets: {}", "torch: x\nbuckets: {../../x: {stays: a, outcomes: {}}}",
     "torch: x\nbuckets: {ab: {stays: ab, outcomes: {'0123456789ab': exploded}}}"],
)  # fmt: skip
def test_what_is_no_record_of_it_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / RETRIED).write_text(text)
    with pytest.raises(CaseError, match=RETRIED) as raised:
        read_retried(tmp_path)
    assert "\n" not in str(raised.value)


def test_nothing_is_imported_that_only_a_corpus_names(tmp_path: Path) -> None:
    foreign = Program(kernel=Function(target="os:system"))
    write(tmp_path / "corpus", "it is broken", foreign)
    assert due(started(tmp_path / "night")) == []


def test_what_hung_is_given_less_time(tmp_path: Path) -> None:
    write(tmp_path / "corpus", "it hangs", kind=FailureKind.HANG)
    again = started(tmp_path / "night").next_work((), anywhere)
    assert again is not None and again.task.settings.deadlines is not None
    assert not again.task.settings.confirm_hang


def test_it_can_be_left_out(tmp_path: Path) -> None:
    write(tmp_path / "corpus", "it is broken")
    (tmp_path / "night").mkdir()
    changed = {"corpus": [tmp_path / "corpus"], "retry": False}
    assert not due(Retry(CONFIG.model_copy(update=changed), tmp_path / "night", TORCH, TODAY))
