"""What follows a finished stage, as data: the findings queue carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.store.store import State
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program

Best = tuple[Program, Outcome]
"""The simplest program of a finding so far, and what it did."""

NextStage = TypeVar("NextStage")


@dataclass(frozen=True, kw_only=True)
class Transition(Generic[NextStage]):
    """What becomes of a finding.

    `state` is recorded, with how many of its fresh `runs` were `failures`, its `bucket`, its `best`
    and its `variants` where they are given. Then `stage` is begun; without one the finding leaves
    the queue: `parked` for a resumed campaign, `reassessed` as a finding of another outcome of its
    program, or `withdrawn` with the bucket that was made of it.
    """

    state: State | None = None
    runs: int | None = None
    failures: int | None = None
    bucket: Bucket | None = None
    best: Best | None = None
    variants: Mapping[str, str] | None = None
    stage: NextStage | None = None
    parked: bool = False
    reassessed: Outcome | None = None
    withdrawn: Bucket | None = None
