"""Commands that read change nothing: of a campaign that ended, was killed, or is running, also
where nothing can be written."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnfuzz.corpus.store.store import DATABASE, Store, StoreError
from attnfuzz.fuzz.campaign.claim import claim
from attnfuzz.fuzz.campaign.interruptions import CampaignError
from attnfuzz.generators.model.program import Program
from tests.support.fake_campaign import CONFIG, run
from tests.support.fake_pool import raised
from tests.support.mounts import mounted

LAST = Program(seed=424242)

Run = Callable[..., subprocess.CompletedProcess[str]]


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign that ended."""
    directory = tmp_path_factory.mktemp("made")
    assert len(run(directory, shipped=False)) == 3
    return directory


@pytest.fixture
def ended(tmp_path: Path, made: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "ended"))


@contextmanager
def running(directory: Path) -> Iterator[None]:
    """The campaign there goes on, and has just found what only its log has."""
    with claim(directory), Store(directory) as store:
        assert store.add_failure(LAST, raised("found last of all")) is not None
        yield


@pytest.fixture
def killed(tmp_path: Path, made: Path) -> Path:
    """A campaign as SIGKILL leaves it: what was found last is only in its log."""
    live = Path(shutil.copytree(made, tmp_path / "live"))
    with running(live):
        return Path(shutil.copytree(live, tmp_path / "killed"))


def assert_told(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 0, result.stderr[-3000:]
    for word in words:
        assert word in result.stdout


def everything(attnfuzz: Run, directory: Path, *words: str) -> None:
    """Runs the commands that read a campaign."""
    result = attnfuzz("triage", directory, "--json")
    assert_told(result, *words)
    first, *others = json.loads(result.stdout)["buckets"]
    assert len(others) == 2
    assert_told(attnfuzz("show", first["id"], "--dir", directory, "--markdown"), "```python")


def test_nothing_is_written_where_a_campaign_ended(attnfuzz: Run, ended: Path) -> None:
    before = contents(ended)
    assert {DATABASE} == {name for name in before if name.startswith(DATABASE)}
    everything(attnfuzz, ended)
    assert contents(ended) == before


def test_nothing_is_written_where_a_campaign_was_killed(attnfuzz: Run, killed: Path) -> None:
    before = contents(killed)
    assert before[f"{DATABASE}-wal"]
    everything(attnfuzz, killed, "found last of all")
    assert contents(killed) == before


def test_a_campaign_is_read_while_it_runs(attnfuzz: Run, ended: Path) -> None:
    with running(ended):
        log = ended / f"{DATABASE}-wal"
        before = contents(ended)
        everything(attnfuzz, ended, "found last of all")
        after = contents(ended)
        assert after.keys() == before.keys() and log.stat().st_size > 0
        index = f"{DATABASE}-shm"  # shared: who reads says so there
        assert after.pop(index) is not None and before.pop(index) is not None
        assert after == before


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99
touch "$1/new" 2>/dev/null && exit 98
for command in "triage $1" "show $3 --dir $1 --markdown"; do
    "$2" -m attnfuzz $command || exit $?
done
"""


@pytest.mark.parametrize("state", ["ended", "killed", "running"])
def test_what_cannot_be_written_to_is_read(ended: Path, killed: Path, state: str) -> None:
    with Store(ended) as store:
        bucket = store.buckets()[0].id
    directory = killed if state == "killed" else ended
    if state == "running":
        with running(directory):
            result = mounted(READ_ONLY, directory, sys.executable, bucket)
    else:
        before = contents(directory)
        result = mounted(READ_ONLY, directory, sys.executable, bucket)
        assert contents(directory) == before
    assert_told(result, bucket, "```python")
    assert ("found last of all" in result.stdout) is (state != "ended")


def refused(result: subprocess.CompletedProcess[str], *words: object) -> None:
    assert result.returncode == 2, result.stderr[-3000:]
    (line,) = result.stderr.splitlines()
    for word in words:
        assert str(word) in line


def test_an_empty_database_is_told_and_stays_empty(attnfuzz: Run, tmp_path: Path) -> None:
    database = tmp_path / DATABASE
    database.touch()
    for command in (("triage", tmp_path), ("show", "abc", "--dir", tmp_path)):
        refused(attnfuzz(*command), database, "empty file")
        assert contents(tmp_path) == {DATABASE: b""}


def test_a_database_without_a_campaign_is_told(attnfuzz: Run, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    before = contents(tmp_path)
    assert before[DATABASE]
    refused(attnfuzz("triage", tmp_path), tmp_path / DATABASE, "without a campaign")
    assert contents(tmp_path) == before


def as_of_version(directory: Path, version: int) -> None:
    """Makes the database there one of another version, as far as the tables that 3 has go."""
    connection = sqlite3.connect(directory / DATABASE)
    for newer in ("environments", "hardware"):
        connection.execute(f"DROP TABLE {newer}")
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()


def test_an_older_campaign_is_read_as_it_is_and_goes_on(attnfuzz: Run, ended: Path) -> None:
    as_of_version(ended, 2)
    before = contents(ended)
    everything(attnfuzz, ended)
    assert contents(ended) == before
    with Store(ended) as store:
        (first, *_) = store.failures()
        store.begin(CONFIG.seed, {}, {"torch": "2.13.1"})
        assert store.environment(first)["torch"] == "2.13.0"


def test_one_of_another_version_is_refused(ended: Path) -> None:
    as_of_version(ended, 9)
    with pytest.raises(
        StoreError, match="a campaign of version 2 or 3 or 4 or 5 or 6, got version 9"
    ):
        Store(ended, create=False)


def test_who_reads_cannot_write(ended: Path, killed: Path) -> None:
    for directory in (ended, killed):
        before = contents(directory)
        with (
            Store(directory, create=False) as store,
            pytest.raises(StoreError, match="cannot be written to"),
        ):
            store.begin(CONFIG.seed, {}, {})
        assert contents(directory) == before


def test_who_reads_keeps_no_campaign_from_running(ended: Path) -> None:
    with Store(ended, create=False) as store, claim(ended):
        assert store.buckets()
    with claim(ended), Store(ended, create=False) as store:
        assert store.buckets()
        with pytest.raises(CampaignError, match="another campaign"), claim(ended):
            pytest.fail("claimed twice")
