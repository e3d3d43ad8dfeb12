"""`triage` and `show`: what campaigns found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnfuzz.fuzz.campaign.shipped import find
from attnfuzz.fuzz.cli.common import Json, console, emit
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.report.escape import say
from attnfuzz.generators.reading.files import is_there

CAMPAIGNS = Path("campaigns")


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(triage)
    app.command()(show)


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

    By kind (crash, wrong_result, nonfinite, hang, …), new before known, reliable before flaky. For
    each: how often it fails, how often its script failed by itself in a clean process, the script's
    length in lines, the layer to blame, how often it was seen, and the known issue it may be. A
    campaign can be looked at while it runs.

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
        raise UserError(f"{found}: expected a campaign ({DATABASE}) or a corpus, found neither")
    if as_json:
        emit({"directory": str(found), "buckets": list(map(report.row_json, ordered))})
    else:
        console().print(report.table(ordered))


def show(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="Its id, or how the id begins.")],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="A campaign's directory, or a corpus. Default: the newest."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print it as the text of an issue.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell everything about a bucket.

    What fails and how, what triggers it, the minimized program, its script, the evidence, what its
    variants do, and which other buckets may be the same.

    `attnfuzz show 3f9a --dir campaigns/night --markdown > issue.md`
    """
    from attnfuzz.fuzz.report.bucket import page_json, page_markdown, page_text
    from attnfuzz.fuzz.report.pages import page

    found = page(find(directory) if directory else newest_campaign(), bucket)
    if as_json:
        emit(page_json(found))
    elif markdown:
        say(page_markdown(found), end="")
    else:
        console().print(page_text(found))


def newest_campaign() -> Path:
    """The directory under `campaigns/` whose database was written last."""
    from attnfuzz.corpus.store.store import DATABASE

    databases = list(CAMPAIGNS.glob(f"*/{DATABASE}"))
    if not databases:
        raise UserError(f"{CAMPAIGNS}: expected a campaign's directory there, found none; name one")
    return max(databases, key=lambda path: (path.stat().st_mtime, path)).parent
