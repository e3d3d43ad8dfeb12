"""From night to night: what one finds and people decide, the next one knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.corpus.bucket import assign, new_bucket
from attnfuzz.corpus.case import (
    Case,
    buckets_in,
    case_folders,
    find_cases,
    read_bucket,
    read_case,
    write_bucket,
    write_case,
)
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.observing import note_tried
from attnfuzz.corpus.decisions.status import status
from attnfuzz.corpus.known_issues import known_as
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.campaign.known_buckets import load_known
from attnfuzz.fuzz.cli.app import main
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Compile, Program, Shape
from tests.support.fake_campaign import CONFIG, run
from tests.support.fake_pool import raised
from tests.support.fake_torch import FakeTorch
from tests.support.one_bucket import write_one

URL = "https://example.org/issues/7"
Command = Callable[..., Any]


@pytest.fixture
def attnfuzz(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process, and gives what it prints: as text, or with --json as data."""

    def command(*arguments: str | Path) -> Any:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        told = capsys.readouterr()
        assert code == 0, told.err
        return json.loads(told.out) if "--json" in arguments else told.out

    return command


def night(directory: Path, corpus: Path, version: str, *faults: str) -> None:
    """A campaign on a simulated torch, which knows the corpus."""
    corpus.mkdir(exist_ok=True)
    run(directory, FakeTorch(version, *faults), shards=8, shipped=False, corpus=[corpus])


def found(corpus: Path) -> dict[str, str]:
    """The ids of a corpus's buckets by the words that tell them apart."""
    words = {"no queries": "lengths", "masks are": "masks", "wrong": "numbers", "heads": "heads"}
    titles = {name: read_bucket(folder).title for name, folder in buckets_in(corpus).items()}
    return {
        short: name for name, title in titles.items() for word, short in words.items()
        if word in title
    }  # fmt: skip


def tried(corpus: Path, bucket: str, version: str, outcome: str) -> None:
    """What `replay --record` notes when all cases of a bucket do that with torch `version`."""
    folder = buckets_in(corpus)[bucket]
    cases = {case.name: outcome for case in case_folders(folder)}
    found_with = read_case(case_folders(folder)[0]).environment["torch"]
    assert note_tried(folder, version, cases, found_with)


def test_the_story_on_a_simulated_torch(tmp_path: Path, attnfuzz: Command) -> None:
    """Night one finds A, B and C; A is reported, B is no bug, C is merged into A. Night two finds D
    and A again. With another torch A is fixed, and B, which was gone in between, is back."""
    corpus = tmp_path / "corpus"
    night(tmp_path / "one", corpus, "2.13.0", "masks", "lengths", "numbers")
    told = attnfuzz("triage", tmp_path / "one")
    assert "since last night: 3 new (" in told
    attnfuzz("adopt", tmp_path / "one", "--into", corpus)
    ids = found(corpus)
    a, b, c = ids["masks"], ids["lengths"], ids["numbers"]
    attnfuzz("decide", a, "reported", "--url", URL, "--by", "Ada", "--corpus", corpus)
    attnfuzz("decide", b, "not-a-bug", "--why", "documented", "--corpus", corpus)
    attnfuzz("merge", a, c, "--corpus", corpus)

    night(tmp_path / "two", corpus, "2.14.0", "masks", "numbers", "heads")
    told = attnfuzz("triage", tmp_path / "two")
    data = attnfuzz("triage", tmp_path / "two", "--json")
    assert "since last night: 1 new (" in told
    (d,) = data["since"]["new"]
    assert data["since"]["again"] == [a], "A, and C as A"
    rows = {row["id"]: row for row in data["buckets"]}
    assert rows[d]["known_issue"] is None and "heads" in rows[d]["title"]
    assert rows[a]["known_issue"] == f"corpus: {a}, reported: {URL}"
    assert rows[c]["known_issue"] == f"corpus: {a}"
    assert not data["since"]["came_back"]
    assert data["since"]["stopped"] == {b: "2.14.0"}, "which the campaign has tried again"
    assert "tried again: 1 known bucket, 1 passed" in told
    told = attnfuzz("adopt", tmp_path / "two", "--into", corpus)
    assert f"new in {corpus}: {d}" in told
    assert status(buckets_in(corpus)[b], date.today()).passes_with("2.14.0")

    night(tmp_path / "three", corpus, "2.15.0", "lengths", "heads")
    told = attnfuzz("triage", tmp_path / "three")
    assert f"since last night: 0 new, 2 again ({', '.join(sorted((b, d)))})" in told
    assert f"came back: {b} (passed with torch 2.14.0)" in told
    assert f"stopped failing: {a} (passed with torch 2.15.0)" in told
    rows = {row["id"]: row for row in attnfuzz("triage", tmp_path / "three", "--json")["buckets"]}
    assert rows[b]["state"] == "came back"
    told = attnfuzz("adopt", tmp_path / "three", "--into", corpus)
    assert f"came back: {b} (passed with torch 2.14.0)" in told
    rows = {row["id"]: row for row in attnfuzz("triage", corpus, "--json")["buckets"]}
    assert {rows[a]["state"], rows[b]["state"], rows[d]["state"]} == {"passes", "came back", "done"}
    assert rows.keys() == {a, b, d}, "C is a part of A"
    attnfuzz("decide", a, "fixed-in", "2.15", "--corpus", corpus)
    attnfuzz("decide", b, "reported", "--url", URL, "--corpus", corpus)
    rows = {row["id"]: row for row in attnfuzz("triage", corpus, "--json")["buckets"]}
    assert (rows[a]["state"], rows[b]["state"]) == ("fixed-in", "reported")


def test_what_is_fixed_in_a_version_comes_back_with_that_version(
    tmp_path: Path, attnfuzz: Command
) -> None:
    corpus = tmp_path / "corpus"
    night(tmp_path / "one", corpus, "2.13.0", "masks")
    attnfuzz("adopt", tmp_path / "one", "--into", corpus)
    (a,) = found(corpus).values()
    attnfuzz("decide", a, "fixed-in", "2.14", "--corpus", corpus)
    for version, back in {"2.13.1": {}, "2.14.0+cpu": {a: "fixed in 2.14"}}.items():
        night(tmp_path / version, corpus, version, "masks")
        assert attnfuzz("triage", tmp_path / version, "--json")["since"]["came_back"] == back


def test_adopting_again_changes_nothing(tmp_path: Path, attnfuzz: Command) -> None:
    corpus = tmp_path / "corpus"
    night(tmp_path / "one", corpus, "2.13.0", "masks", "lengths", "numbers")
    first = attnfuzz("adopt", tmp_path / "one", "--into", corpus, "--json")
    assert len(first["new"]) == 3 and first["cases"] >= 3 and not first["known"]
    before = {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()}
    again = attnfuzz("adopt", tmp_path / "one", "--into", corpus, "--json")
    assert not again["new"] and again["cases"] == 0 and sorted(again["known"]) == sorted(
        first["new"]
    )  # fmt: skip
    assert before == {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()}
    for folder in buckets_in(corpus).values():
        (seen,) = history(folder)
        assert seen.said.kind == "seen" and seen.said.torch == "2.13.0"


def test_a_known_bucket_gets_further_cases_up_to_the_limit(
    tmp_path: Path, attnfuzz: Command
) -> None:
    corpus = tmp_path / "corpus"
    bucket = write_one(corpus, 1)
    (mine,) = find_cases([corpus])
    (mine / "repro.py").write_text("# edited by hand\n")
    write_one(tmp_path / "other", 1, 2, 3, 4, 5)
    done = attnfuzz("adopt", tmp_path / "other", "--into", corpus, "--max-cases", "3", "--json")
    assert (done["known"], done["cases"], done["left_out"]) == ([bucket.id], 2, 2)
    assert len(find_cases([corpus])) == 3
    assert (mine / "repro.py").read_text() == "# edited by hand\n", "nothing is written over"


def test_the_corpus_of_the_first_night_may_be_empty(tmp_path: Path) -> None:
    night(tmp_path / "one", tmp_path / "corpus", "2.13.0", "masks")
    assert load_known(CONFIG.model_copy(update={"corpus": [tmp_path / "corpus"]})).buckets


def test_a_case_that_was_split_off_is_not_merged_back(tmp_path: Path, attnfuzz: Command) -> None:
    """A key with a stack tells nothing of the two apart: the split bucket's programs do."""
    corpus = tmp_path / "corpus"
    failure = raised("masks are broken").failure
    assert failure is not None
    plain = Program(mask=Causal(), shape=Shape(q_len=16, kv_len=48))
    special = replace(plain, compile=Compile(dynamic=True), seed=3)
    bucket = new_bucket(signature(failure, plain), failure, features(plain))
    write_bucket(corpus, bucket)
    for program in (plain, special):
        write_case(corpus, bucket, Case(program=program, failure=failure))
    attnfuzz("split", bucket.id, program_id(special), "--corpus", corpus)
    (new,) = buckets_in(corpus).keys() - {bucket.id}
    config = CONFIG.model_copy(update={"corpus": [corpus], "shipped": False})

    def label(program: Program) -> str | None:
        known = load_known(config).buckets
        there = assign(signature(failure, program), failure, features(program), known)
        return known_as(there.known_issue if there else None)

    assert label(plain) == bucket.id
    assert label(replace(special, seed=9)) == new
    source = tmp_path / "later"
    write_bucket(source, bucket)
    write_case(source, bucket, Case(program=replace(special, seed=9), failure=failure))
    attnfuzz("adopt", source, "--into", corpus)
    assert len(case_folders(buckets_in(corpus)[new])) == 2
    attnfuzz("undo", bucket.id, "--corpus", corpus)
    assert label(special) == label(plain) == bucket.id
