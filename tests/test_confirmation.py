"""What a device says of a virtual finding: recorded beside the case, and shown with it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.corpus.case import CaseError, find_cases, read_case
from attnfuzz.corpus.confirmation import (
    CONFIRMATIONS,
    Confirmation,
    add_confirmation,
    read_confirmations,
)
from attnfuzz.fuzz.replay.confirmations import record
from attnfuzz.fuzz.replay.verdict import Replayed, Seen, Verdict
from attnfuzz.fuzz.report.pages import page

CASES = Path(__file__).resolve().parent.parent / "corpus" / "cases"
THERE = {"card": "NVIDIA H200", "architecture": "sm90", "torch": "2.11.0+cu130"}
H200 = Confirmation(target="cuda", card="NVIDIA H200", torch="2.11.0+cu130", verdict="confirmed")


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A shipped case, as if a virtual card had found it, in a corpus of its own."""
    source = find_cases([CASES])[0]
    folder = tmp_path / source.parent.name / source.name
    folder.parent.mkdir()
    shutil.copy(source.parent / "bucket.yaml", folder.parent)
    shutil.copytree(source, folder)
    (folder / "environment.yaml").write_text(
        "target: virtual-sm90\ncard: H100 (virtual)\ntorch: 2.11.0+cpu\n"
    )
    return folder


def replayed(verdict: Verdict) -> Replayed:
    return Replayed(verdict=verdict, expected=Seen(status="failed"), seen=())


def test_confirmations_are_read_as_written_and_replaced_by_later_ones(case: Path) -> None:
    assert read_confirmations(case) == []
    add_confirmation(case, H200)
    refuted = replace(H200, verdict="refuted", saw="fixed")
    other = replace(H200, torch="2.13.0")
    for latest in (other, refuted):
        add_confirmation(case, latest)
    assert read_confirmations(case) == [refuted, other]
    assert str(refuted) == "refuted on NVIDIA H200 with torch 2.11.0+cu130: fixed"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("confirmations: [{target: cuda}]", "confirmations[0].card: this key is required"),
        ("confirmations: {}", "confirmations: expected a list, got {}"),
        ("verdict: confirmed", "confirmations: this key is required"),
    ],
)
def test_a_bad_file_is_one_sentence(case: Path, text: str, sentence: str) -> None:
    (case / CONFIRMATIONS).write_text(text)
    with pytest.raises(CaseError) as raised:
        read_confirmations(case)
    assert str(raised.value).startswith(f"{case / CONFIRMATIONS}: {sentence}")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict.AS_RECORDED, "confirmed on NVIDIA H200 with torch 2.11.0+cu130"),
        (Verdict.FIXED, "refuted on NVIDIA H200 with torch 2.11.0+cu130: fixed"),
    ],
)
def test_a_replay_on_a_device_is_recorded_and_shown(
    case: Path, verdict: Verdict, words: str
) -> None:
    record([case], [read_case(case)], ["cuda"], [replayed(verdict)], [THERE], report=print)
    shown = page(case.parents[1], case.parent.name.partition("-")[0])
    assert shown.virtual is not None and shown.virtual.endswith(words)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ({"architecture": "sm86"}, Verdict.FIXED),
        ({"torch": "2.13.0"}, Verdict.FIXED),
        ({}, Verdict.CHANGED),
    ],
)
def test_another_card_or_torch_or_failure_refutes_nothing(
    case: Path, now: dict[str, str], verdict: Verdict
) -> None:
    record(
        [case],
        [read_case(case)],
        ["cuda"],
        [replayed(verdict)],
        [THERE | now],
        report=print,
    )
    assert read_confirmations(case) == []


def test_another_card_may_confirm(case: Path) -> None:
    there = THERE | {"architecture": "sm120"}
    record(
        [case],
        [read_case(case)],
        ["cuda"],
        [replayed(Verdict.FLAKY)],
        [there],
        report=print,
    )
    assert [one.verdict for one in read_confirmations(case)] == ["confirmed"]


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        ("cpu", Verdict.FIXED), ("virtual-sm90", Verdict.AS_RECORDED), ("cuda", Verdict.NOT_RUN),
    ],
)  # fmt: skip
def test_nothing_else_says_anything_of_it(case: Path, target: str, verdict: Verdict) -> None:
    record([case], [read_case(case)], [target], [replayed(verdict)], [{}], report=print)
    assert read_confirmations(case) == []
