"""What a launch knows before it starts anything, and that one that fails leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.corpus.store.store import DATABASE, Store
from attnfuzz.fuzz.campaign.claim import claim

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]

WITHOUT_RAY = (
    "import sys; from attnfuzz.fuzz.cli.app import main; code = main(sys.argv[1:]); "
    "sys.exit(99 if 'ray' in sys.modules else code)"
)


def without_torch(folder: Path) -> Path:
    bare = folder / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    return bare


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("corpus: [empty]", "empty: expected a case"),
        ("known_issues: issues.yaml", "issues.yaml: expected a list of known issues"),
        ("toolchain: python", "toolchain: expected a Python interpreter with torch, but in"),
        ("toolchain: /bin/ls", "toolchain: expected a Python interpreter with torch, but"),
    ],
)
def test_it_fails_before_ray_and_leaves_nothing(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").touch()
    (tmp_path / "issues.yaml").write_text("{a: 1}")
    without_torch(tmp_path)
    config = tmp_path / "campaign.yaml"
    config.write_text(f"minutes: 1\nworkers: 1\n{text}\n")
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, "launch", config, "--dir", tmp_path / "new" / "one"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert says in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_claim_that_begins_nothing_leaves_nothing(tmp_path: Path) -> None:
    with claim(tmp_path / "a" / "b"), Store(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / DATABASE).exists()
    assert os.listdir(tmp_path) == []


def test_a_claim_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(RuntimeError), claim(tmp_path), Store(tmp_path):
        raise RuntimeError
    assert os.listdir(tmp_path) == ["mine"]
    with Store(tmp_path) as store:
        store.begin(1, {}, {})
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(RuntimeError), claim(tmp_path), Store(tmp_path):
        raise RuntimeError
    assert sorted(os.listdir(tmp_path)) == before


def test_a_campaign_that_has_begun_stays(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), claim(tmp_path / "new") as made, Store(tmp_path / "new"):
        made.begun = True
        raise RuntimeError
    assert (tmp_path / "new" / DATABASE).exists()
