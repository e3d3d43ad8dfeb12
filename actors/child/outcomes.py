"""Outcomes as plain JSON-able dicts, in the shape of `generators.model.outcome`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 20_000
"""Characters of one piece of evidence."""

Data = dict[str, Any]


class Failed(Exception):
    """The program failed; `failure` is the data of a `Failure`."""

    def __init__(self, failure: Data) -> None:
        super().__init__(failure["kind"])
        self.failure = failure


class Rejected(Exception):
    """The program was refused by design, because of `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class NotRun(Exception):
    """What comes before the program went wrong, as `why` says in a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def failure(
    kind: str,
    phase: str,
    *,
    layer: str | None = None,
    oracle: str = "",
    raised: Data | None = None,
    diffs: Sequence[Data] = (),
    evidence: Mapping[str, str] | None = None,
) -> Data:
    """The data of a `Failure`; evidence is cut to `LONGEST` characters, keeping both ends."""
    return {
        "kind": kind,
        "phase": phase,
        "layer": layer,
        "oracle": oracle,
        "raised": raised,
        "diffs": list(diffs),
        "signal": None,
        "evidence": {name: cut(text) for name, text in (evidence or {}).items() if text},
    }


def diff(
    output: str,
    what: str,
    expected: object,
    actual: object,
    *,
    call: int,
    error: float | None = None,
    budget: float | None = None,
    block: tuple[int, int] | None = None,
) -> Data:
    """The data of a `Diff`."""
    return {
        "output": output,
        "what": what,
        "expected": str(expected),
        "actual": str(actual),
        "error": error,
        "budget": budget,
        "block": block,
        "call": call,
    }


def cut(text: str) -> str:
    """`text` with its middle left out if it is longer than `LONGEST`."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2 - 10
    return f"{text[:half]}\n[…]\n{text[-half:]}"
