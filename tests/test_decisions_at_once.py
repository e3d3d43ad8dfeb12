"""Commands that are killed at any instant, and people who decide at the same time, in one folder or
in two clones: nothing is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.corpus.case import buckets_in, case_folders
from attnfuzz.corpus.decisions.deciding import decide, verdict
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.status import status
from attnfuzz.fuzz.cli.app import main
from tests.support.fake_campaign import run
from tests.support.fake_torch import FakeTorch
from tests.support.one_bucket import write_one

ROOT = Path(__file__).resolve().parent.parent
TODAY = date.today()


def content(corpus: Path) -> dict[str, Any]:
    """All that a corpus says, but for when: events are named by their place in the history."""
    found: dict[str, Any] = {
        str(path.relative_to(corpus)): path.read_text()
        for path in corpus.rglob("*")
        if path.is_file() and path.parent.name != "history"
    }
    for name, folder in buckets_in(corpus).items():
        events = history(folder)
        places = {event.name: place for place, event in enumerate(events)}
        said = [event.said.model_dump(mode="json", exclude={"at"}) for event in events]
        for one in said:
            one["instead_of"] = [places[other] for other in one.get("instead_of", [])]
            one["event"] = places.get(one.get("event", ""))
        found[f"history of {name}"] = said
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_commands_that_are_killed_and_repeated_do_the_same(tmp_path: Path, seed: int) -> None:
    """Each command is killed three times before it may end, on campaigns of a simulated torch."""
    nights = {"one": ("masks", "lengths", "numbers"), "two": ("masks", "heads", "numbers")}
    for name, faults in nights.items():
        pool = FakeTorch("2.13.0", *faults)
        run(tmp_path / name, pool, shards=4, shipped=False)
    write_one(tmp_path / "more", *range(1, 9))
    made = tmp_path / "made"
    assert main(["adopt", str(tmp_path / "one"), "--into", str(made)]) == 0
    ids = sorted(buckets_in(made))
    a, b, c = ids
    (large,) = buckets_in(tmp_path / "more").values()
    cases = [folder.name for folder in case_folders(large)]
    here = ["--corpus", "CORPUS"]
    commands = [
        ["adopt", str(tmp_path / "one"), "--into", "CORPUS"],
        ["decide", a, "reported", "--url", "https://example.org/1", *here],
        ["decide", b, "not-a-bug", "--why", "documented", *here],
        ["decide", b, "wont-fix", *here],
        ["undo", b, *here],
        ["merge", a, c, *here],
        ["adopt", str(tmp_path / "two"), "--into", "CORPUS"],
        ["adopt", str(tmp_path / "more"), "--into", "CORPUS", "--max-cases", "7"],
    ]
    other = [
        ["split", large.name[:8], *cases[2:6], *here],
        ["undo", large.name[:8], *here],
    ]
    for at in ("u", "v"):
        shutil.copytree(tmp_path / "more", tmp_path / at)
    twice = [
        [[one.replace("CORPUS", str(tmp_path / at)) for one in command] for at in pair]
        for pair, some in (("xy", commands), ("uv", other))
        for command in some
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_commands", str(seed), "3"],
        cwd=ROOT, input=json.dumps(twice), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["killed"] > len(twice), "most are killed before their end"
    for peace, war in (("x", "y"), ("u", "v")):
        assert content(tmp_path / war) == content(tmp_path / peace)


DECIDES = """
import sys
from attnfuzz.fuzz.cli.app import main
corpus, bucket, who = sys.argv[1:]
for number in range(20):
    why = f"{who} {number}"
    assert not main(["decide", bucket, "wont-fix", "--why", why, "--by", who, "--corpus", corpus])
"""


@pytest.mark.slow
def test_two_people_who_decide_at_once_lose_nothing(tmp_path: Path) -> None:
    bucket = write_one(tmp_path, 1)
    people = [
        subprocess.Popen(
            [sys.executable, "-c", DECIDES, str(tmp_path), bucket.id, who],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for who in ("Ada", "Bob")
    ]  # fmt: skip
    told = [one.communicate(timeout=120)[1] for one in people]
    assert [one.returncode for one in people] == [0, 0], told
    events = history(tmp_path / bucket.folder)
    assert [event.place[0] for event in events] == list(range(1, 41))
    assert {event.said.why for event in events} == {
        f"{who} {number}" for who in ("Ada", "Bob") for number in range(20)
    }
    for before, event in zip(events, events[1:], strict=False):
        assert event.said.instead_of == [before.name], "each knew of all that came before"
    assert not status(tmp_path / bucket.folder, TODAY).also


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_decisions_of_two_clones_are_merged_by_git(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    bucket = write_one(corpus, 1)
    folder = corpus / bucket.folder

    def git(*arguments: str) -> None:
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *author, *arguments], cwd=corpus, check=True, capture_output=True)

    git("init", "-b", "ours")
    git("add", ".")
    git("commit", "-m", "a corpus")
    git("checkout", "-b", "theirs")
    for number in range(3):
        decide(folder, verdict("wont-fix", TODAY, why=f"theirs {number}"))
    git("add", ".")
    git("commit", "-m", "theirs")
    git("checkout", "ours")
    decide(folder, verdict("reported", TODAY, url="https://example.org/1"))
    git("add", ".")
    git("commit", "-m", "ours")
    git("merge", "theirs")
    assert len(history(folder)) == 4
    now = status(folder, TODAY)
    assert now.decision and [now.kind, *(one.said.kind for one in now.also)] == [
        "wont-fix", "reported"
    ]  # fmt: skip
    assert "theirs 2" in now.label and "https://example.org/1" in now.label
