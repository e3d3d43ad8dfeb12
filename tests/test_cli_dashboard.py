"""The commands that show what was found as pages, and the lines that `make fuzz` ends with."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.fuzz.cli.launch import next_steps
from tests.support.hostile_campaign import record_hostile

REPORT = ("report", "corpus/cases", "--buckets", "0", "--html")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_launch_ends_with_three_lines() -> None:
    told = next_steps(Path("smoke.yaml"), Path("night"), Path("night/report.html"), "5f5a4f18")
    first, second, third = told.splitlines()
    assert first.startswith("open night/report.html   ")
    assert second.startswith("attnfuzz show 5f5a4f18 --dir night   ")
    assert third.startswith("attnfuzz dashboard night   ")
    nothing = next_steps(Path("smoke.yaml"), Path("night"), Path("night/report.html"), None)
    assert "attnfuzz launch smoke.yaml --dir night --resume   goes on" in nothing


def test_a_report_of_a_corpus(attnfuzz: Run, tmp_path: Path) -> None:
    done = attnfuzz("report", "corpus/cases", "--html", tmp_path / "cases.html", "--buckets", "3")
    assert done.returncode == 0, done.stderr
    assert f"open {tmp_path}/cases.html" in done.stdout
    text = (tmp_path / "cases.html").read_text()
    assert text.startswith("<!doctype html>") and text.count("<article") == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("report", "tests", "--html", "{tmp}/x.html"), "expected a campaign (campaign.sqlite) or"),
        ((*REPORT, "README.md/x.html"), "README.md/x.html: file exists"),
        ((*REPORT, "{tmp}"), "expected a file to write to"),
        (("dashboard", "tests"), "expected a campaign (campaign.sqlite) or a corpus"),
        (("dashboard", "/nowhere"), "expected a campaign"),
        (("dashboard", "corpus/cases", "--host", "0.0.0.0"), "expected --allow-host NAME"),
        (("dashboard", "corpus/cases", "--host", "203.0.113.7"), "--host 203.0.113.7"),
        (("dashboard", "corpus/cases", "--port", "99999"), "--port"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    attnfuzz: Run, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = attnfuzz(*(one.format(tmp=tmp_path) for one in arguments))
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_port_that_is_taken_is_refused(attnfuzz: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = attnfuzz("dashboard", "corpus/cases", "--port", str(port))
    assert done.returncode == 2 and "address already in use" in done.stderr


@pytest.mark.slow
def test_a_hostile_campaign_is_only_text_on_a_terminal(attnfuzz: Run, tmp_path: Path) -> None:
    directory = record_hostile(tmp_path)
    for arguments in (("triage", directory), *(
        ("show", name, "--dir", directory) for name in ("4080b6d1", "00bd3422")
    )):  # fmt: skip
        done = attnfuzz(*arguments)
        assert done.returncode == 0, done.stderr
        assert not [one for one in done.stdout if not one.isprintable() and one != "\n"]
        assert "<script>owned()</script>" in done.stdout
