"""Cases on disk: whole or not at all, read with suspicion, never executed."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.corpus.bucket import Bucket, new_bucket
from attnfuzz.corpus.case import (
    Case,
    CaseError,
    Preload,
    find_cases,
    read_bucket,
    read_case,
    write_bucket,
    write_case,
)
from attnfuzz.corpus.files import UNFINISHED, write_atomically
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Frame,
    Layer,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Program

ROOT = Path(__file__).resolve().parents[1]
NASTY = "tabs\tand \x00 \x1b[0m \u2028 \ud800 line\r\nends: 'quotes' \"too\"\n  - # !!python\n"

FAILURE = Failure(
    kind=FailureKind.NONFINITE,
    phase=Phase.EAGER,
    layer=Layer.EAGER,
    oracle="finiteness",
    raised=Raised(
        type="ValueError", message="it broke", frames=(Frame(file="a.py", function="f"),)
    ),
    diffs=(
        Diff(
            output="out",
            what="value",
            expected="0.1",
            actual="nan",
            error=float("inf"),
            budget=1e-9,
        ),
    ),
    evidence={"stderr": "line one\nline two\n"},
)
PROGRAM = Program(seed=3, kernel=Sdpa(scale=0.0, mask_form="is_causal"), mask=Causal())


def preload(text: str) -> Preload:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Preload(name="fault.py", sha256=digest, text=text)


CASE = Case(
    program=PROGRAM,
    failure=FAILURE,
    environment={"torch": "2.13.0+cpu", "python": "3.11.7"},
    original="0123456789ab",
    minimized=True,
    runs=5,
    failures=4,
    preload=(preload("import torch\r\nprint('µ')\n"),),
    repro="raise SystemExit('never run by reading')\n",
)
BUCKET = new_bucket(signature(FAILURE, PROGRAM), FAILURE, features(PROGRAM), known_issue="x-1")


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_case_goes_to_disk_and_back(tmp_path: Path) -> None:
    write_bucket(tmp_path, BUCKET)
    folder = write_case(tmp_path, BUCKET, CASE)
    assert folder == tmp_path / BUCKET.folder / CASE.id
    assert listing(tmp_path / BUCKET.folder) == sorted(
        ["bucket.yaml"]
        + [f"{CASE.id}/{name}" for name in ("program.yaml", "repro.py", "failure.yaml")]
        + [f"{CASE.id}/environment.yaml", f"{CASE.id}/preload/fault.py"]
    )
    assert read_case(folder) == CASE
    assert read_bucket(folder.parent) == BUCKET


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = write_case(tmp_path, BUCKET, CASE)
    before = {name: (folder / name).read_bytes() for name in listing(folder)}
    assert write_case(tmp_path, BUCKET, CASE) == folder
    assert {name: (folder / name).read_bytes() for name in listing(folder)} == before
    assert "seed: 3" in before["program.yaml"].decode()


def test_a_case_is_written_over_when_more_is_known(tmp_path: Path) -> None:
    folder = write_case(tmp_path, BUCKET, CASE)
    write_case(tmp_path, BUCKET, replace(CASE, failures=5))
    assert read_case(folder).failures == 5


def test_evidence_may_hold_anything(tmp_path: Path) -> None:
    nasty = replace(CASE, failure=replace(FAILURE, evidence={"stdout": NASTY}))
    found = read_case(write_case(tmp_path, BUCKET, nasty))
    assert found.failure.evidence["stdout"] == NASTY.replace("\ud800", "?")


def test_a_bucket_keeps_its_folder_when_its_title_changes(tmp_path: Path) -> None:
    first = write_bucket(tmp_path, BUCKET)
    assert write_bucket(tmp_path, replace(BUCKET, slug="other", title="Other")) == first
    assert read_bucket(first).title == "Other"
    assert write_case(tmp_path, replace(BUCKET, slug="other"), CASE).parent == first


def spoil(name: str, old: str, new: str, folder: Path) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("program.yaml", "kind: causal", "kind: casual", "mask"),
        ("program.yaml", "seed: 3", "seed: -3", "seed"),
        ("program.yaml", "seed: 3", "seed: !!python/object/apply:os.abort []", "tag"),
        ("failure.yaml", "runs: 5", "runs: many", "runs: "),
        ("failure.yaml", "runs: 5", "runs: 5\nwalks: 5", "walks: unknown key"),
        ("failure.yaml", "original: 0123456789ab", "original: ../../x", "original: "),
        ("failure.yaml", "kind: nonfinite", "kind: infinite", "failure.kind"),
        ("failure.yaml", "name: fault.py", "name: ../../fault.py", "preload[0].name: "),
        ("environment.yaml", "torch: 2.13.0+cpu", "torch: [1]", "torch: "),
        ("preload/fault.py", "import torch", "import other", "sha256"),
    ],
)
def test_what_is_not_a_case_is_one_sentence_that_names_file_and_key(
    tmp_path: Path, name: str, old: str, new: str, told: str
) -> None:
    folder = write_case(tmp_path, BUCKET, CASE)
    spoil(name, old, new, folder)
    with pytest.raises(CaseError) as caught:
        read_case(folder)
    assert str(folder / name) in str(caught.value) and told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["program.yaml", "failure.yaml", "environment.yaml"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_case(tmp_path, BUCKET, CASE)
    (folder / name).unlink()
    with pytest.raises(CaseError, match=name):
        read_case(folder)


def test_a_spoilt_bucket_is_one_sentence(tmp_path: Path) -> None:
    folder = write_bucket(tmp_path, BUCKET)
    spoil("bucket.yaml", "strong:", "weak:", folder)
    with pytest.raises(CaseError, match=r"bucket\.yaml: "):
        read_bucket(folder)


def other_bucket() -> Bucket:
    return replace(BUCKET, id="ffffffff")


def test_cases_are_found_from_a_corpus_a_bucket_a_case_or_a_file(tmp_path: Path) -> None:
    one = write_case(tmp_path, BUCKET, CASE)
    two = write_case(tmp_path, other_bucket(), replace(CASE, program=Program()))
    assert find_cases([tmp_path]) == sorted([one, two])
    assert find_cases([two.parent]) == find_cases([two]) == find_cases([two / "repro.py"]) == [two]
    assert find_cases([tmp_path, one]) == sorted([one, two])


def test_where_there_is_no_case_that_is_said(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", ROOT / "README.md"):
        with pytest.raises(CaseError, match="expected a case"):
            find_cases([path])


def test_what_a_crash_left_unfinished_is_no_case_and_is_cleared_away(tmp_path: Path) -> None:
    folder = write_case(tmp_path, BUCKET, CASE)
    leftover = folder.rename(folder.with_name(f"{UNFINISHED}{folder.name}"))
    (leftover / "failure.yaml").unlink()
    with pytest.raises(CaseError, match="expected a case"):
        find_cases([tmp_path])
    assert read_case(write_case(tmp_path, BUCKET, CASE)) == CASE
    assert not leftover.exists()


def test_a_failed_write_leaves_the_old_and_no_rest(tmp_path: Path) -> None:
    folder = write_bucket(tmp_path, BUCKET)
    before = (folder / "bucket.yaml").read_text()
    script = """
        import resource, signal, sys
        from pathlib import Path
        from attnfuzz.corpus.files import make_folder_atomically, write_atomically
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        folder = Path(sys.argv[1])
        for attempt in (
            lambda: write_atomically(folder / "bucket.yaml", "x" * 5000),
            lambda: make_folder_atomically(folder / "case", {"a/b.yaml": "x" * 5000}),
        ):
            try:
                attempt()
            except OSError as error:
                print(error.errno)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert len(done.stdout.split()) == 2, done.stderr
    assert (folder / "bucket.yaml").read_text() == before
    assert [path.name for path in folder.iterdir()] == ["bucket.yaml"]


def test_a_bucket_for_which_there_is_no_room_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("attnfuzz.corpus.files._write_through", full)
    with pytest.raises(OSError, match="No space left"):
        write_bucket(tmp_path, BUCKET)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_old_or_new_after_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "bucket.yaml"
    write_atomically(path, "0" * 10_000)
    script = """
        import sys
        from pathlib import Path
        from attnfuzz.corpus.files import write_atomically
        print("ready", flush=True)
        for n in range(10**6):
            write_atomically(Path(sys.argv[1]), str(n % 10) * 10_000)
            print(n, flush=True)
    """
    for wait in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(path)],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert writer.stdout is not None
        for _ in range(2 + wait):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.stdout.read()
        writer.wait()
        text = path.read_text()
        assert len(text) == 10_000 and len(set(text)) == 1


def test_a_preload_file_is_recorded_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "fault.py"
    path.write_bytes(CASE.preload[0].text.encode())
    assert Preload.of(path) == CASE.preload[0]
