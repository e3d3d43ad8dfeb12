"""Files that somebody has put into a corpus or a campaign to harm whoever reads it: each is refused
at once in one sentence."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from attnfuzz.corpus.case import CaseError, find_cases, read_bucket, read_case, write_bucket
from attnfuzz.corpus.files import make_folder_atomically, write_atomically
from attnfuzz.corpus.store.listing import Group
from attnfuzz.corpus.store.store import State, Store, StoreError
from attnfuzz.fuzz.campaign.claim import claim
from attnfuzz.fuzz.cli.app import main
from attnfuzz.generators.reading.files import ProgramError, holding, read_inside, read_text
from attnfuzz.generators.reading.safe_yaml import MAX_DIGITS, load_yaml_safely
from benchmarks.hostile_base import CASES, copy_of, make_base


@dataclass
class Result:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Result]
ROOT = Path(__file__).resolve().parent.parent
BUCKET = CASES[0]
NAME = BUCKET.partition("-")[0]
AT_ONCE_S = 60


@pytest.fixture
def attnfuzz(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Runs a command in this process, as the console script does; a hang ends it with SIGALRM."""

    def run(*arguments: str | Path) -> Result:
        capsys.readouterr()
        signal.alarm(AT_ONCE_S)
        code = main([str(one) for one in arguments])
        told = capsys.readouterr()
        return Result(code, told.out, told.err)

    yield run
    signal.alarm(0)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("hostile") / "base")


@pytest.fixture
def work(base: Path, tmp_path: Path) -> Path:
    """A corpus, a campaign, and a file outside, to tamper with."""
    copy_of(base, tmp_path, BUCKET)
    return tmp_path


@pytest.fixture
def case(work: Path) -> Path:
    (found,) = find_cases([work / "corpus"])
    return found


def refused(result: Result, *words: object) -> None:
    """Exit code 2 and one sentence with these words in it."""
    assert result.returncode == 2, (result.returncode, result.stdout[-500:], result.stderr[-3000:])
    (line,) = result.stderr.splitlines()
    assert line.startswith("attnfuzz: ")
    for word in words:
        assert str(word) in line


# Devices and links


@pytest.mark.parametrize("name", ["program.yaml", "failure.yaml", "repro.py", "preload/fault.py"])
@pytest.mark.parametrize("command", ["replay", "triage"])
def test_a_pipe_in_a_case_is_refused_at_once(
    attnfuzz: Command, work: Path, case: Path, command: str, name: str
) -> None:
    (case / name).unlink()
    os.mkfifo(case / name)
    result = attnfuzz(command, work / "corpus")
    refused(result, case / name, "expected a regular file, got a pipe")


def test_a_pipe_in_a_campaigns_corpus_is_refused_at_once(attnfuzz: Command, work: Path) -> None:
    (case,) = find_cases([work / "campaign" / "corpus"])
    (case / "repro.py").unlink()
    os.mkfifo(case / "repro.py")
    for arguments in (["triage", work / "campaign"], ["show", NAME, "--dir", work / "campaign"]):
        refused(attnfuzz(*arguments), case / "repro.py", "got a pipe")


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
@pytest.mark.parametrize("place", ["corpus", "campaign"])
def test_a_link_shows_nothing_of_what_it_leads_to(
    attnfuzz: Command, work: Path, place: str, form: list[str]
) -> None:
    (case,) = find_cases([work / place])
    (case / "repro.py").unlink()
    (case / "repro.py").symlink_to(work / "outside" / "secret")
    result = attnfuzz("show", NAME, "--dir", work / place, *form)
    assert result.returncode == 2
    assert "what-lies-outside" not in result.stdout + result.stderr
    assert "expected no link inside a corpus" in result.stdout + result.stderr


@pytest.mark.parametrize("what", ["case", "bucket", "preload", "file", "loop", "dangling"])
def test_a_link_in_a_corpus_is_refused(
    attnfuzz: Command, work: Path, case: Path, what: str
) -> None:
    target = {
        "case": case, "bucket": case.parent, "preload": case / "preload",
        "file": case / "failure.yaml", "loop": case / "loop", "dangling": case / "repro.py",
    }[what]  # fmt: skip
    if what == "loop":
        target.symlink_to(case.parent)
    elif what == "dangling":
        target.unlink()
        target.symlink_to("/nowhere/at/all")
    else:
        target.rename(work / "outside" / "moved")
        target.symlink_to(work / "outside" / "moved")
    refused(attnfuzz("replay", work / "corpus"), "expected no link inside a corpus", target.name)


def test_the_corpus_that_is_named_may_itself_be_a_link(attnfuzz: Command, work: Path) -> None:
    (work / "link").symlink_to(work / "corpus")
    assert attnfuzz("triage", work / "link").returncode == 0
    assert find_cases([work / "link"])


def test_a_program_that_is_named_may_come_through_a_pipe_that_the_shell_made(case: Path) -> None:
    script = f'exec "{sys.executable}" -m attnfuzz render <(cat "{case / "program.yaml"}")'
    for command in (script, script.replace("<(cat", "/dev/stdin < <(cat")):
        result = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=AT_ONCE_S
        )
        assert result.returncode == 0, result.stderr
        assert "def attention" in result.stdout


def test_a_named_pipe_for_a_program_is_refused_at_once(attnfuzz: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "program.yaml")
    for command in ("render", "run"):
        result = attnfuzz(command, tmp_path / "program.yaml")
        refused(result, "program.yaml: expected a regular file, got a pipe")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(tmp_path)
        made.bind("socket")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, sort in (("socket", "a socket"), ("zero", "a device"), (".", "a folder")):
        with pytest.raises(ProgramError, match=f"expected a regular file, got {sort}"):
            read_text(tmp_path / name)
    with pytest.raises(ProgramError, match="expected no link"):
        read_inside(tmp_path, "zero")


def test_sizes_and_counts_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.py").touch()
    os.truncate(tmp_path / "large.py", 1 << 40)
    with pytest.raises(ProgramError, match="at most 1000000 bytes"):
        read_inside(tmp_path, "large.py")
    monkeypatch.setattr("attnfuzz.generators.reading.files.MAX_ENTRIES", 10)
    for n in range(11):
        (tmp_path / str(n)).mkdir()
    with pytest.raises(ProgramError, match="at most 10 files, got more"):
        holding(tmp_path, "program.yaml")


# Writing


def test_nothing_is_written_by_way_of_a_link(work: Path, case: Path) -> None:
    bucket, outside = read_bucket(case.parent), work / "outside"
    (work / "other").mkdir()
    (work / "other" / bucket.folder).symlink_to(outside)
    with pytest.raises(ProgramError):
        write_bucket(work / "other", bucket)
    with pytest.raises(ProgramError, match="expected a folder to write to"):
        make_folder_atomically(work / "other" / bucket.folder, {"x": "y"})
    (case / ".unfinished-repro.py").symlink_to(outside / "secret")
    write_atomically(case / "repro.py", "new")
    assert (case / "repro.py").read_text() == "new"
    os.mkfifo(case / ".unfinished-repro.py")
    write_atomically(case / "repro.py", "newer")
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert "new" not in (outside / "secret").read_text()


def test_a_campaigns_lock_and_database_are_files_of_their_own(work: Path) -> None:
    folder = work / "campaign"
    (folder / "campaign.lock").symlink_to(work / "outside" / "secret")
    with pytest.raises(ProgramError, match="got a link"), claim(folder):
        pass
    assert (work / "outside" / "secret").read_text()
    os.mkfifo(folder / "campaign.sqlite-wal")
    with pytest.raises(StoreError, match="campaign.sqlite-wal: expected a regular file"):
        Store(folder)


# Fields


SPOILT = [
    ("bucket.yaml", "notes:", "notes: {repro: {x: 3}}\nn:", "notes.repro"),
    ("bucket.yaml", "notes:", "notes: [1]\nn:", "notes: expected a mapping"),
    ("bucket.yaml", "notes:", "notes: {repro: [1]}\nn:", "notes.repro: expected a mapping"),
    ("bucket.yaml", "kind: ", "kind: unheard_of\nk: ", "kind: expected"),
    ("bucket.yaml", "id: ", "id: ../../x\ni: ", "id: "),
    ("bucket.yaml", "slug: ", f"slug: {'x' * 300}\ns: ", "slug: "),
    ("failure.yaml", "runs: ", f"runs: {'9' * 4200}\nr: ", f"at most {MAX_DIGITS} digits"),
    ("failure.yaml", "runs: ", "runs: 1000000000000000\nr: ", "runs: expected an integer <="),
    ("environment.yaml", "torch: ", f"torch: {'x' * 3000}\nt: ", "torch: "),
    ("confirmations.yaml", "card: ", "card: 3\n  c: ", "card: expected text, got 3"),
    ("program.yaml", "", f"seed: {'9' * 4200}\n", f"at most {MAX_DIGITS} digits"),
]


@pytest.mark.parametrize("name, old, new, told", SPOILT)
def test_each_field_has_its_model(
    attnfuzz: Command, work: Path, case: Path, name: str, old: str, new: str, told: str
) -> None:
    folder = case.parent if name == "bucket.yaml" else case
    text = (folder / name).read_text()
    assert old in text
    lines = [new + line if at == 0 and not old else line for at, line in enumerate([text])]
    (folder / name).write_text(lines[0] if not old else text.replace(old, new, 1))
    refused(attnfuzz("show", NAME, "--dir", work / "corpus"), folder / name, told)


def test_a_list_for_a_bucket_is_refused(attnfuzz: Command, work: Path, case: Path) -> None:
    (case.parent / "bucket.yaml").write_text("[1, 2]")
    for arguments in (["triage", work / "corpus"], ["show", NAME, "--dir", work / "corpus"]):
        refused(attnfuzz(*arguments), "bucket.yaml: expected a mapping, got [1, 2]")


@pytest.mark.parametrize("digits", [MAX_DIGITS + 1, 400, 4200, 4400, 100_000])
def test_an_integer_has_as_many_digits_as_mean_something(digits: int) -> None:
    with pytest.raises(ProgramError, match=f"at most {MAX_DIGITS} digits"):
        load_yaml_safely("9" * digits)


# The database

LISTED_CELLS = [
    ("failures", "program_id", "../../../x", "failures: row 1: program_id"),
    ("failures", "state", "unheard_of", "failures: row 1: state: expected"),
    ("failures", "runs", "many", "failures: row 1: runs: expected an integer"),
    ("failures", "runs", 9e99, "failures: row 1: runs"),
    ("failures", "strong", b"\xff", "failures: row 1: strong: expected text"),
    ("failures", "bucket", "ffffffff", "failures: row 1: bucket: expected a bucket of the table"),
    ("severities", "score", "x", "severities: row"),
    ("severities", "strangeness", -1, "severities: row"),
    ("buckets", "data", "{}", "buckets: row"),
    ("buckets", "data", "nul", "buckets: row"),
    ("buckets", "id", "ffff", "failures: row 1: bucket"),
    ("counts", "value", "x", "counts: row"),
    ("counts", "value", float("inf"), "counts: row"),
]
CELLS_OF_ONE = [
    ("outcome", "no JSON", "outcome: expected a mapping"),
    ("outcome", "{}", "outcome"),
    ("program", "[", "program: expected a mapping"),
    ("program", f'{{"seed": {"9" * 4200}}}', "program"),
    ("program", '{"shape": {"q_heads": 3, "kv_heads": 2}}', "program"),
    ("best_outcome", "{}", "best_outcome"),
]


def tamper(database: Path, table: str, column: str, cell: object) -> None:
    with closing(sqlite3.connect(database)) as opened:
        opened.execute(
            f'UPDATE {table} SET "{column}"=? WHERE rowid=(SELECT min(rowid) FROM {table})', (cell,)
        )
        opened.commit()


@pytest.mark.parametrize("table, column, cell, told", LISTED_CELLS)
def test_a_row_that_is_none_of_ours_is_named(
    attnfuzz: Command, work: Path, table: str, column: str, cell: object, told: str
) -> None:
    database = work / "campaign" / "campaign.sqlite"
    tamper(database, table, column, cell)
    refused(attnfuzz("triage", work / "campaign"), f"{database}: {told}")


@pytest.mark.parametrize("column, cell, told", CELLS_OF_ONE)
def test_a_failure_that_is_none_of_ours_is_named(
    work: Path, column: str, cell: object, told: str
) -> None:
    database = work / "campaign" / "campaign.sqlite"
    tamper(database, "failures", column, cell)
    with Store(work / "campaign", create=False) as store, pytest.raises(StoreError) as raised:
        store.failures()
    assert str(raised.value).startswith(f"{database}: failures: row 1: {told}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("column, cell", [("versions", "[1]"), ("config", "1"), ("seed", "x")])
def test_a_campaign_that_is_none_is_not_resumed(
    attnfuzz: Command, work: Path, monkeypatch: pytest.MonkeyPatch, column: str, cell: object
) -> None:
    database = work / "campaign" / "campaign.sqlite"
    with closing(sqlite3.connect(database)) as opened:
        opened.execute(f"UPDATE campaign SET {column}=?", (cell,))
        opened.commit()
    monkeypatch.chdir(work)
    resumed = attnfuzz("launch", "r.yaml", "--dir", "campaign", "--resume")
    refused(resumed, f"campaign.sqlite: campaign: row 1: {column}: expected")


SCHEMES = [
    ("DROP TABLE variants", "expected a table variants, got none"),
    ("ALTER TABLE failures DROP COLUMN evaluated", "failures: expected a column evaluated"),
    ("PRAGMA user_version=7", "got version 7"),
    ("CREATE TRIGGER t AFTER INSERT ON shards BEGIN DELETE FROM failures; END", "got trigger 't'"),
    ("CREATE VIEW v AS SELECT 1", "got view 'v'"),
    (
        "ALTER TABLE variants RENAME TO v; CREATE VIEW variants AS WITH RECURSIVE r(n) AS "
        "(SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT v.* FROM v, r",
        "expected the tables of a campaign only",
    ),
]


@pytest.mark.parametrize("script, told", SCHEMES)
def test_other_tables_are_none_of_a_campaign(
    attnfuzz: Command, work: Path, script: str, told: str
) -> None:
    database = work / "campaign" / "campaign.sqlite"
    with closing(sqlite3.connect(database)) as opened:
        opened.executescript(script)
    refused(attnfuzz("triage", work / "campaign"), database, told)


def test_a_database_that_is_a_link_or_a_pipe_is_refused(attnfuzz: Command, work: Path) -> None:
    database = work / "campaign" / "campaign.sqlite"
    database.rename(work / "outside" / "moved")
    database.symlink_to(work / "outside" / "moved")
    refused(attnfuzz("triage", work / "campaign"), database, "got a link")
    database.unlink()
    os.mkfifo(database)
    refused(attnfuzz("triage", work / "campaign"), database, "got a pipe")


def test_reading_names_the_file(work: Path, case: Path) -> None:
    (case / "environment.yaml").write_bytes("torch: é".encode("latin-1"))
    with pytest.raises(CaseError, match=r"environment\.yaml: expected UTF-8"):
        read_case(case)


def test_damage_that_sqlite_cannot_name_is_refused(attnfuzz: Command, work: Path) -> None:
    database = work / "campaign" / "campaign.sqlite"
    raw = database.read_bytes()
    assert b"CREATE TABLE counts" in raw
    database.write_bytes(raw.replace(b"CREATE TABLE counts", b"CREATE T\xcbBLE counts"))
    refused(attnfuzz("triage", work / "campaign"), f"{database}: the file is damaged")


def test_an_index_that_disagrees_with_its_table_is_damage(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(bucket="ff", strong="s", state=State.DONE, count=1, from_shards=1, first=1)
    monkeypatch.setattr("attnfuzz.corpus.store.listing.groups", lambda *_: [group])
    damaged = pytest.raises(StoreError, match="failures: the file is damaged")
    with Store(work / "campaign", create=False) as store, damaged:
        store.occurrences()
