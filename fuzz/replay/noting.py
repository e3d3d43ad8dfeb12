"""What a replay has seen of each bucket goes into the histories of the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.corpus.case import BUCKET, Case, id_of
from attnfuzz.corpus.decisions.observing import note_tried
from attnfuzz.corpus.decisions.status import status
from attnfuzz.fuzz.errors import user_path
from attnfuzz.fuzz.replay.verdict import Replayed, Verdict
from attnfuzz.generators.reading.files import is_there


@dataclass
class Noted:
    """By a bucket's id what a replay changes: with which torch it no longer fails (`stopped`), and
    why one that fails `came_back`."""

    stopped: dict[str, str] = field(default_factory=dict)
    came_back: dict[str, str] = field(default_factory=dict)


def note_results(
    folders: Sequence[Path],
    cases: Sequence[Case],
    on: Sequence[str],
    results: Sequence[Replayed],
    there: Sequence[dict[str, str]],
) -> Noted:
    """Notes what the `cases` did that ran on their own targets, where it is not what they did
    before with that torch. Raises UserError, and CaseError."""
    groups: dict[tuple[Path, str], list[tuple[Case, Replayed]]] = {}
    for folder, case, name, result, now in zip(folders, cases, on, results, there, strict=True):
        is_own = name == case.environment.get("target", DEFAULT)
        if is_own and result.verdict is not Verdict.NOT_RUN and is_there(folder.parent / BUCKET):
            key = (folder.parent, now.get("torch", "unknown"))
            groups.setdefault(key, []).append((case, result))
    noted = Noted()
    for (folder, torch), ran in groups.items():
        before = status(folder, date.today())
        found = {case.id: result.verdict.value for case, result in ran}
        with user_path(folder):
            if note_tried(folder, torch, found, ran[0][0].environment.get("torch")) is None:
                continue
        passes = status(folder, date.today()).passes_with(torch)
        back = before.came_back(torch) if not passes else None
        if passes and before.passes_with(torch) is None:
            noted.stopped[id_of(folder)] = passes
        elif back:
            noted.came_back[id_of(folder)] = back
    return noted
