"""What the replay of a virtual card's finding on a device says of it, written beside its case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.case import Case
from attnfuzz.corpus.confirmation import Confirmation, add_confirmation
from attnfuzz.fuzz.errors import user_path
from attnfuzz.fuzz.replay.verdict import Replayed


def record(
    folders: Sequence[Path],
    cases: Sequence[Case],
    on: Sequence[str],
    results: Sequence[Replayed],
    there: Sequence[dict[str, str]],
    *,
    report: Callable[[str], None],
) -> None:
    """Writes beside each virtual finding that was run on a device what that has shown, and
    reports it in a line."""
    for folder, case, name, result, now in zip(folders, cases, on, results, there, strict=True):
        recorded_on = TARGETS.get(case.environment.get("target", DEFAULT))
        if recorded_on is None or recorded_on.stand_in is None or not TARGETS[name].can_confirm:
            continue
        if result.verdict.value == "not_run":
            continue
        verdict = _says(recorded_on.name, case.environment, result, now)
        if verdict is None:
            report(f"{result.summary}, on another card or torch, says nothing: {folder}")
            continue
        latest = Confirmation(
            target=name,
            card=now.get("card", "unknown"),
            torch=now.get("torch", "unknown"),
            verdict=verdict,
            saw=None if verdict == "confirmed" else result.summary,
        )
        with user_path(folder):
            add_confirmation(folder, latest)
        report(f"{latest}: {folder}")


def _says(
    virtual: str, recorded: Mapping[str, str], result: Replayed, now: Mapping[str, str]
) -> Literal["confirmed", "refuted"] | None:
    """What a device's replay says of a finding of the target `virtual`. What fails on a small card
    may pass on a large one, and what fails with one torch with another: only the same
    architecture and release refute, and only by passing."""
    if result.as_recorded or result.verdict.value == "flaky":
        return "confirmed"
    stands_for = virtual.partition("-")[2]
    alike = now.get("architecture", "").startswith(stands_for) and (
        _release(now) == _release(recorded)
    )
    passed = all(one.status == "passed" for one in result.seen)
    return "refuted" if alike and passed and result.verdict.value == "fixed" else None


def _release(environment: Mapping[str, str]) -> str:
    return environment.get("torch", "").partition("+")[0]
