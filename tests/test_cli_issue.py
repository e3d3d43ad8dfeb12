"""`attnfuzz issue`: what it gives, and when it gives nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fenced_blocks import blocks

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_case_of_a_card_gives_no_text_and_one_sentence(attnfuzz: Command) -> None:
    ran = attnfuzz("issue", "c04c", "--dir", "corpus/cases")
    assert ran.returncode == 1 and ran.stdout == ""
    assert "needs a device that is not here" in ran.stderr and len(ran.stderr.splitlines()) == 1
    ran = attnfuzz("issue", "c04c", "--dir", "corpus/cases", "--json")
    assert ran.returncode == 1 and json.loads(ran.stdout)["issue"] is None


def test_what_cannot_be_used_is_one_sentence(attnfuzz: Command) -> None:
    planted = attnfuzz("issue", "786e169c", "--dir", "corpus/planted")
    assert planted.returncode == 2 and "no fault of torch's" in planted.stderr
    nowhere = attnfuzz("issue", "5023", "--dir", "corpus/cases", "--out", "no/such/issue.md")
    assert nowhere.returncode == 2 and "--out: expected a file" in nowhere.stderr
    unknown = attnfuzz("issue", "ffffffff", "--dir", "corpus/cases")
    assert unknown.returncode == 2 and "Traceback" not in unknown.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("043a59ae", ["stands at default tolerances", "BisectionResult(backend='aot_eager'"]),
        ("1adbcc08", ["No number decides", "AssertionError: create-block_mask requires"]),
    ],
)
def test_the_code_of_a_shipped_case_fails_as_it_says(
    attnfuzz: Command, tmp_path: Path, name: str, words: list[str]
) -> None:
    out = tmp_path / "issue.md"
    ran = attnfuzz("issue", name, "--dir", "corpus/cases", "--out", out, "--runs", "1", timeout=900)
    assert ran.returncode == 0, ran.stderr
    text = out.read_text()
    assert all(word in text for word in words), text
    assert "PyTorch version:" in text and "failed as it says in 1 of 1 run" in text
    (tmp_path / "code.py").write_text(blocks(text)[0])
    again = subprocess.run(
        [sys.executable, "-I", tmp_path / "code.py"], capture_output=True, text=True
    )
    assert again.returncode == 1 and "AssertionError" in again.stderr
