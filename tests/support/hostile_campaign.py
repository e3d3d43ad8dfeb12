"""A campaign and a corpus full of text that means to be more than text."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from attnfuzz.corpus.case import write_bucket, write_case
from attnfuzz.corpus.store.store import DATABASE, State, Store
from attnfuzz.fuzz.report.findings import CASES
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import Diff, Failure, Frame, Outcome, Raised
from tests.support.recorded_campaign import found_as, record_campaign, shipped
from tests.support.shard_reports import Report

MARK = "owned()"
HOSTILE = (
    f"<script>{MARK}</script>",
    f'"><img src=x onerror="{MARK}">',
    f"</pre></style></script><svg onload={MARK}>",
    f"javascript:{MARK}",
    f"\x1b[2J\x1b]0;{MARK}\x07\x9b31m \u202egnp.exe \u2066\r\b\x00",
    f"{{{{ {MARK} }}}} {{% raw %}} ${{{MARK}}} $x^2$ `{MARK}`",
    f"../../../etc/passwd/{MARK}",
)
LONG = 10_000_000
"""Characters of a message."""


def record_hostile(directory: Path) -> Path:
    """Writes it."""
    record_campaign(directory, count=1)
    everything = "\n".join(HOSTILE)
    with Store(directory) as store:
        store.record_shard(
            Report(
                50,
                features=dict.fromkeys(HOSTILE, 1),
                rejections={text[:200]: 1 for text in HOSTILE},
            )
        )
        for place, (bucket, case) in enumerate(shipped(3)[1:], 20):
            long = everything + "A" * LONG if place == 20 else everything
            failure = _failure(case.failure, long)
            program = found_as(case.program)
            title = f"{HOSTILE[place % 3]} {HOSTILE[4]}"
            named = replace(bucket, title=title, known_issue=HOSTILE[3])
            failed = Outcome(
                status="failed",
                failure=failure,
                features=HOSTILE,
                skipped=dict.fromkeys(HOSTILE, HOSTILE[0]),
            )
            store.record_shard(Report(place, failures=[(program, failed)]))
            short = replace(failed, failure=_failure(case.failure, everything))
            name = program_id(program)
            store.update_failure(
                name, State.DONE, runs=5, failures=4, bucket=named, best=(case.program, short)
            )
            write_bucket(directory / CASES, named)
            hurt = replace(
                case, original=name, failure=_failure(case.failure, everything[:5000]),
                repro=f'"""{everything}"""\n', environment={text[:300]: text for text in HOSTILE},
            )  # fmt: skip
            write_case(directory / CASES, named, hurt)
    _target(directory)
    return directory


def _failure(failure: Failure, text: str) -> Failure:
    raised = Raised(
        type=HOSTILE[0],
        message=text,
        chain=HOSTILE,
        frames=(Frame(file=HOSTILE[6], function=HOSTILE[1]),),
    )
    diff = Diff(output=HOSTILE[0], what=HOSTILE[1], expected=HOSTILE[2], actual=HOSTILE[4])
    evidence = {name: text[:20_000] for name in HOSTILE} | {
        f"elements of {HOSTILE[0]}": "(0, 0, 1, 2) (99999999999999999) (3, 4)",
        f"error map of {HOSTILE[0]}": f"{HOSTILE[0]}\n..0\n.9N\n",
    }
    return replace(failure, raised=raised, diffs=(*failure.diffs, diff), evidence=evidence)


def _target(directory: Path) -> None:
    """The API refuses such a target and version; a file from elsewhere may have them."""
    with closing(sqlite3.connect(directory / DATABASE)) as database, database:
        database.execute("UPDATE failures SET target=?", (HOSTILE[0],))
        versions = json.dumps({text[:300]: text for text in HOSTILE} | {"torch": HOSTILE[0]})
        database.execute("UPDATE campaign SET versions=?", (versions,))
        database.execute("UPDATE environments SET versions=?", (versions,))
