"""`triage`: the buckets of a campaign, worst first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, console, emit, newest_campaign
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.shipped import find
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import is_there


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(triage)


Directory = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]",
        help="A campaign's directory, or a corpus of cases. Default: the newest under campaigns/. "
        "corpus/cases are those installed, where the current folder has none.",
    ),
]


def triage(directory: Directory = None, as_json: Json = False) -> None:
    """List the buckets of a campaign, worst first.

    By severity: the kind of failure, less what makes its program unlike those of models; a silent
    wrong result of an ordinary program comes first. Then new before known, reliable before flaky.
    For each: how often it fails, how often its script failed by itself in a clean process, the
    script's length in lines, the layer to blame, how often it was seen, and the known issue it may
    be. A campaign can be looked at while it runs.

    `attnfuzz triage campaigns/night`
    """
    from attnfuzz.corpus.store.store import DATABASE, Store
    from attnfuzz.fuzz.report import findings
    from attnfuzz.fuzz.report import tables as report

    found = find(directory) if directory else newest_campaign()
    if is_there(found / DATABASE):
        with Store(found, create=False) as store:
            if as_json:
                emit(findings.campaign_json(store, found))
            else:
                console().print(findings.campaign_table(store, found))
        return
    ordered = report.worst_first(findings.corpus_rows(found))
    if not ordered:
        raise UserError(mismatch(found, f"a campaign ({DATABASE}) or a corpus", "neither"))
    if as_json:
        emit({"directory": str(found), "buckets": list(map(report.row_json, ordered))})
    else:
        console().print(report.table(ordered))
