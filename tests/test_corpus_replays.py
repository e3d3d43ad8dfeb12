"""Replays of a corpus are written down, none is lost, and what is written is read with care."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from attnfuzz.corpus.case import CaseError, case_folders
from attnfuzz.corpus.decisions.observing import note_tried
from attnfuzz.corpus.replays import KEPT, REPLAYS, Replays, add_replay, read_replays
from attnfuzz.fuzz.replay.verdict import Verdict
from tests.support.one_bucket import write_one


def replay(at: float, fixed: int = 0) -> Replays:
    return Replays(at=at, torch="2.13.0", counts={"as_recorded": 3, "fixed": fixed}, others={})


def test_what_is_added_is_read_in_order(tmp_path: Path) -> None:
    assert read_replays(tmp_path) == []
    for at in (1.0, 2.0):
        add_replay(tmp_path, replay(at))
    assert read_replays(tmp_path) == [replay(1.0), replay(2.0)]
    assert replay(1.0, fixed=2).cases == 5


def test_every_verdict_of_a_replay_can_be_written_down(tmp_path: Path) -> None:
    counts = {one.value: 1 for one in Verdict}
    others = {f"{at:012x}": one.value for at, one in enumerate(Verdict)}
    every = Replays.model_validate({"at": 1, "torch": "2.15.0", "counts": counts, "others": others})
    add_replay(tmp_path, every)
    assert read_replays(tmp_path) == [every]
    bucket = write_one(tmp_path, *range(len(Verdict)))
    cases = [one.name for one in case_folders(tmp_path / bucket.folder)]
    ran = {case: one.value for case, one in zip(cases, Verdict, strict=True)}
    del ran[cases[list(Verdict).index(Verdict.NOT_RUN)]]
    event = note_tried(tmp_path / bucket.folder, "2.15.0", ran, "2.13.0")
    assert event is not None and event.said.outcomes == ran


def _add(folder: Path) -> None:
    for at in range(10):
        add_replay(folder, replay(at))


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_add, args=(tmp_path,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(read_replays(tmp_path)) == 20


def test_the_latest_are_kept(tmp_path: Path) -> None:
    line = replay(0.0).model_dump_json()
    (tmp_path / REPLAYS).write_text(f"{line}\n" * KEPT)
    add_replay(tmp_path, replay(7.0))
    kept = read_replays(tmp_path)
    assert len(kept) == KEPT and kept[-1] == replay(7.0)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"at": 1}', '{"at": NaN, "torch": "x", "counts": {}, "others": {}}',
             '{"at": 1, "torch": "x", "counts": {}, "others": {"../../x": "fixed"}}', "[" * 5000]
)  # fmt: skip
def test_what_is_no_replay_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / REPLAYS).write_text(f"{replay(1.0).model_dump_json()}\n{text}\n")
    with pytest.raises(CaseError, match=f"{REPLAYS}: line 2") as raised:
        read_replays(tmp_path)
    assert len(str(raised.value)) < 500 and "\n" not in str(raised.value)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    corpus.mkdir()
    elsewhere.write_text("secret\n")
    (corpus / REPLAYS).symlink_to(elsewhere)
    with pytest.raises(CaseError):
        add_replay(corpus, replay(1.0))
    assert elsewhere.read_text() == "secret\n"
