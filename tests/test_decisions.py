"""Decisions on buckets: what is in force, expired or taken back; and files of strangers."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from attnfuzz.corpus.case import CaseError, buckets_in, case_folders, read_case
from attnfuzz.corpus.decisions.deciding import decide, verdict
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.merging import merge, standings
from attnfuzz.corpus.decisions.observing import note_tried
from attnfuzz.corpus.decisions.splitting import split
from attnfuzz.corpus.decisions.status import Status, status
from attnfuzz.corpus.decisions.undoing import undo
from attnfuzz.fuzz.cli.app import main
from attnfuzz.generators.reading.files import ProgramError
from tests.support.one_bucket import write_one

TODAY = date(2027, 1, 10)
URL = "https://example.org/1"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / write_one(tmp_path, 1, 2, 3).folder


def now(bucket: Path) -> Status:
    return status(bucket, TODAY)


def test_the_last_decision_holds_and_names_what_it_replaces(bucket: Path) -> None:
    first = decide(bucket, verdict("reported", TODAY, url=URL, by="Ada"))
    second = decide(bucket, verdict("not-a-bug", TODAY, why="documented"))
    assert first and second and second.said.instead_of == [first.name]
    assert now(bucket).label == "not a bug: documented, until 2027-04-10"
    assert [event.said.by for event in history(bucket)] == ["Ada", None]


def test_deciding_the_same_again_writes_nothing(bucket: Path) -> None:
    same = [decide(bucket, verdict("reported", TODAY, url=URL)) for _ in range(3)]
    assert [event is None for event in same] == [False, True, True]
    assert decide(bucket, verdict("reported", TODAY, url=URL, by="Bob")), "somebody else has too"


def test_a_decision_holds_to_its_last_day_and_is_then_to_be_looked_at_again(bucket: Path) -> None:
    decide(bucket, verdict("wont-fix", TODAY, until="2027-02-01", why="old"))
    assert status(bucket, date(2027, 2, 1)).kind == "wont-fix"
    later = status(bucket, date(2027, 2, 2))
    assert later.kind == "" and later.expired is not None
    assert later.label == "to be looked at again: won't fix: old, until 2027-02-01"
    decide(bucket, verdict("wont-fix", date(2027, 2, 2), why="old"))
    assert status(bucket, date(2027, 5, 3)).kind == "wont-fix"


def test_undo_is_an_event_and_repeating_it_takes_back_no_more(bucket: Path) -> None:
    first = decide(bucket, verdict("reported", TODAY, url=URL))
    second = decide(bucket, verdict("wont-fix", TODAY))
    assert first and second
    taken_back, event = undo(bucket)
    assert taken_back.name == second.name and event is not None
    assert now(bucket).kind == "reported"
    assert undo(bucket)[1] is None, "a command that was killed may be repeated"
    assert now(bucket).kind == "reported"
    assert undo(bucket, first.name)[1] is not None and now(bucket).kind == ""
    assert undo(bucket, event.name)[1] is not None and now(bucket).kind == "wont-fix"
    assert len(history(bucket)) == 5


def test_what_two_clones_decided_at_once_both_stands(bucket: Path) -> None:
    """As git merges them: both files are there, and neither knew of the other."""
    decide(bucket, verdict("reported", TODAY, url=URL))
    (mine,) = (bucket / "history").iterdir()
    mine = mine.rename(bucket.parent / mine.name)
    decide(bucket, verdict("not-a-bug", TODAY, why="documented"))
    mine.rename(bucket / "history" / mine.name)
    both = now(bucket)
    assert len(history(bucket)) == 2 and len(both.also) == 1
    assert "decided elsewhere: " in both.label
    assert "reported" in both.label and "not a bug" in both.label
    decide(bucket, verdict("reported", TODAY, url=URL))
    assert not now(bucket).also and now(bucket).kind == "reported"


def test_merged_buckets_are_the_one_that_stays(tmp_path: Path) -> None:
    names = [write_one(tmp_path, 1, message=word).id for word in ("one", "two", "three")]
    folders = buckets_in(tmp_path)
    a, b, c = (folders[name] for name in names)
    assert merge(a, b) and merge(b, c) and merge(a, c) is None
    assert {one.stays for one in standings(tmp_path, TODAY).values()} == {names[0]}
    for stays, other in ((b, a), (a, a)):
        with pytest.raises(CaseError, match="expected a bucket to merge it into"):
            merge(stays, other)
    with pytest.raises(CaseError, match=f"merged into {names[0]}: decide on that"):
        decide(b, verdict("wont-fix", TODAY))
    undo(b)
    assert standings(tmp_path, TODAY)[names[1]].stays == names[1]


def test_buckets_that_were_merged_into_each_other_are_one(tmp_path: Path) -> None:
    names = [write_one(tmp_path, 1, message=word).id for word in ("one", "two")]
    a, b = (buckets_in(tmp_path)[name] for name in names)
    merge(a, b)
    (theirs,) = (b / "history").iterdir()
    theirs = theirs.rename(tmp_path / theirs.name)
    merge(b, a)
    theirs.rename(b / "history" / theirs.name)
    assert {one.stays for one in standings(tmp_path, TODAY).values()} == {min(names)}


def test_split_and_undo_lose_no_case(bucket: Path) -> None:
    cases = {folder.name: read_case(folder) for folder in case_folders(bucket)}
    first, *others = cases
    new = split(bucket, [first])
    assert split(bucket, [first]) == new, "a command that was killed may be repeated"
    assert [one.name for one in case_folders(new)] == [first]
    assert [one.name for one in case_folders(bucket)] == others
    assert {one.name: read_case(one) for one in (new / first, *case_folders(bucket))} == cases
    with pytest.raises(CaseError, match=r"expected some of .*, got all"):
        split(bucket, others)
    with pytest.raises(CaseError, match="undo that there"):
        undo(new)
    assert undo(bucket)[1] is not None
    assert standings(bucket.parent, TODAY)[new.name[:8]].stays == bucket.name[:8]


def test_one_torch_may_pass_what_it_failed_before(bucket: Path) -> None:
    """As a nightly build does that keeps its version, or another machine."""
    cases = [folder.name for folder in case_folders(bucket)]
    note_tried(bucket, "2.13.0", dict.fromkeys(cases, "fixed"), "2.13.0")
    assert now(bucket).passes_with("2.13.0") == "2.13.0" and now(bucket).went == "passes"
    note_tried(bucket, "2.13.0", {cases[0]: "as_recorded"}, "2.13.0")
    assert now(bucket).passes_with("2.13.0") is None and now(bucket).went == "came back"


def test_versions_tell_what_came_back_from_what_was_never_gone(bucket: Path) -> None:
    (case, *_) = (folder.name for folder in case_folders(bucket))

    def tried(torch: str, outcome: str) -> None:
        note_tried(bucket, torch, {case: outcome}, "2.13.0")

    tried("2.11.0", "fixed")
    tried("2.13.0", "as_recorded")
    assert now(bucket).came_back("2.13.0") is None, "it passed before it was found"
    tried("2.14.0", "fixed")
    assert now(bucket).passes_with("2.14.0") == now(bucket).stopped("2.15.0") == "2.14.0"
    assert now(bucket).passes_with("2.13.0") is None
    assert now(bucket).came_back("2.13.0") is None, "an older torch has it still"
    assert now(bucket).came_back("2.15.0") == "passed with torch 2.14.0"
    tried("2.15.0", "changed")
    assert now(bucket).went == "came back" and now(bucket).passes_with("2.15.0") is None
    assert len(history(bucket)) == 4
    tried("2.15.0", "changed")
    assert len(history(bucket)) == 4, "what is known is not noted again"
    decide(bucket, verdict("reported", TODAY, url=URL))
    assert now(bucket).came_back("2.15.0") is None, "somebody has decided on it since"


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("reported", {}, "url: this key is required"),
        ("reported", {"url": "javascript:alert(1)"}, "url: string should match"),
        ("not-a-bug", {}, "why: this key is required"),
        ("not-a-bug", {"why": "x" * 3000}, "why: "),
        ("fixed-in", {"version": "soon"}, "version: expected a version such as 2.14"),
        ("wont-fix", {"until": "tomorrow"}, "until: expected a date such as"),
        ("duplicate-of", {"other": "../../x"}, "other: "),
        ("seen", {}, "unknown kind"),
    ],
)
def test_what_cannot_be_decided_is_one_sentence(
    kind: str, given: dict[str, str], said: str
) -> None:
    with pytest.raises(ProgramError, match=said):
        verdict(kind, TODAY, **given)


NAME = "0001-0123456789ab.yaml"
HOSTILE = {
    "no mapping": (NAME, "- 1\n", "expected"),
    "unknown kind": (NAME, "kind: exec\n", "unknown kind 'exec'"),
    "unknown key": (NAME, f"kind: reported\nurl: {URL}\nrun: id\n", "run: unknown key"),
    "tag": (NAME, "kind: !!python/name:os.system reported\n", "tags are not allowed"),
    "bomb": (NAME, "a: &a [x]\nb: [*a, *a]\n", "aliases"),
    "path": (NAME, "kind: merged-into\nother: ../../etc\n", "other"),
    "time": (NAME, f"kind: reported\nurl: {URL}\nat: now\n", "at: expected a time"),
    "large": (NAME, f"kind: not-a-bug\nwhy: {'x' * 2_000_000}\n", "1000000 bytes"),
    "name": ("decision.yaml", "kind: undo\n", "a name such as 0001-"),
    "undo": (NAME, "kind: undo\nevent: ../x\n", "event"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_event_is_one_sentence(
    bucket: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, text, said = HOSTILE[name]
    (bucket / "history").mkdir()
    (bucket / "history" / file).write_text(text)
    refused(bucket, capsys, said)


@pytest.mark.parametrize("sort", ["link", "pipe", "folder", "link to a folder"])
def test_only_regular_files_are_events(
    bucket: Path, sort: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = bucket / "history"
    if sort == "link to a folder":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir()
    if sort == "link":
        (folder / NAME).symlink_to("/etc/passwd")
    elif sort == "pipe":
        os.mkfifo(folder / NAME)
    elif sort == "folder":
        (folder / NAME).mkdir()
    refused(bucket, capsys, "expected")


def refused(bucket: Path, capsys: pytest.CaptureFixture[str], said: str) -> None:
    """Every command that reads the history says what is wrong, and writes nothing."""
    corpus = str(bucket.parent)
    before = sorted(bucket.parent.rglob("*"))
    for command in (
        ["triage", corpus],
        ["show", bucket.name[:8], "--dir", corpus],
        ["decide", bucket.name[:8], "wont-fix", "--corpus", corpus],
        ["undo", bucket.name[:8], "--corpus", corpus],
    ):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "history" in line and said in line
    assert sorted(bucket.parent.rglob("*")) == before


def test_a_campaign_is_adopted_before_anything_is_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "campaign.sqlite").touch()
    assert main(["decide", "3f9a", "wont-fix", "--corpus", str(tmp_path)]) == 2
    assert "attnfuzz adopt" in capsys.readouterr().err
