"""Each replay of a whole corpus is written down beside it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from attnfuzz.corpus.case import Case
from attnfuzz.corpus.replays import REPLAYS, Replays, add_replay
from attnfuzz.corpus.store.store import DATABASE
from attnfuzz.fuzz.errors import os_sentence
from attnfuzz.fuzz.replay.verdict import Replayed, Verdict
from attnfuzz.fuzz.report.findings import CASES
from attnfuzz.generators.reading.files import is_there


def note_replay(
    directory: Path,
    cases: Sequence[Case],
    results: Sequence[Replayed],
    there: Sequence[dict[str, str]],
    report: Callable[[str], None],
) -> None:
    """Writes down what became of all `cases` of the corpus in `directory`, or of the campaign
    there. Where nothing can be written that is reported: the replay itself is done. Raises
    CaseError."""
    corpus = directory / CASES if is_there(directory / DATABASE) else directory
    counts = Counter(result.verdict.value for result in results)
    others = {
        case.id: result.verdict.value
        for case, result in zip(cases, results, strict=True)
        if result.verdict is not Verdict.AS_RECORDED
    }
    torch = next((one["torch"] for one in there if "torch" in one), "unknown")
    latest = Replays.model_validate(
        {
            "at": time.time(),
            "torch": torch,
            "counts": dict(sorted(counts.items())),
            "others": others,
        }
    )
    try:
        add_replay(corpus, latest)
    except OSError as error:
        report(f"not written down: {os_sentence(error, corpus / REPLAYS)}")
