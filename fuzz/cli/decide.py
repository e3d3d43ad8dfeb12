"""`decide`, `merge`, `split`, `undo`: what people make of the buckets of a corpus."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnfuzz.fuzz.cli.common import Json, emit
from attnfuzz.fuzz.errors import user_path
from attnfuzz.fuzz.report.escape import say

if TYPE_CHECKING:
    from attnfuzz.corpus.decisions.events import Event

Bucket = Annotated[str, typer.Argument(metavar="BUCKET", help="Its id, or how the id begins.")]
Corpus = Annotated[Path, typer.Option("--corpus", metavar="DIR", help="The corpus it is in.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides; noted in the history.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    for command in (decide, merge, split, undo):
        app.command()(command)


def decide(
    bucket: Bucket,
    verdict: Annotated[
        str,
        typer.Argument(
            metavar="VERDICT",
            help="What is decided: reported, not-a-bug, wont-fix, duplicate-of or fixed-in.",
        ),
    ],
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[OTHER|VERSION]",
            help="For duplicate-of the other bucket, for fixed-in the version of torch.",
        ),
    ] = None,
    *,
    corpus: Corpus,
    url: Annotated[str | None, typer.Option(help="For reported: the public thread.")] = None,
    why: Annotated[str | None, typer.Option(help="The reason; not-a-bug needs one.")] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="DATE",
            help="The last day on which it holds. Default: 90 days on for not-a-bug and wont-fix.",
        ),
    ] = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Decide on a bucket of a corpus.

    The decision is a small file in the bucket's folder `history`, which is never written over: the
    last decision holds, and `undo` takes it back. Later campaigns that know the corpus say what was
    decided. After its last day the bucket is listed to be looked at again.

    `attnfuzz decide 3f9a reported --url https://github.com/pytorch/pytorch/issues/1 --corpus found`
    `attnfuzz decide 3f9a not-a-bug --why "documented so" --corpus found`
    `attnfuzz decide 3f9a duplicate-of 51c0 --corpus found`
    `attnfuzz decide 3f9a fixed-in 2.14 --corpus found`
    """
    from attnfuzz.fuzz.deciding import decide_on, folder_in

    folder = folder_in(corpus, bucket)
    with user_path(corpus):
        event = decide_on(folder, verdict, what, url=url, why=why, until=until, by=by)
    _answer(folder, event, "decided already", as_json)


def merge(
    stays: Annotated[str, typer.Argument(metavar="A", help="The bucket that stays.")],
    other: Annotated[str, typer.Argument(metavar="B", help="The bucket that becomes part of it.")],
    *,
    corpus: Corpus,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Make bucket B a part of bucket A: they are one cause.

    Later campaigns count failures of either as A's. Nothing is moved: the history of B says so, and
    `attnfuzz undo B` takes it back.

    `attnfuzz merge 3f9a 51c0 --corpus found`
    """
    from attnfuzz.corpus.decisions.merging import merge as record
    from attnfuzz.fuzz.deciding import folder_in

    kept, part = folder_in(corpus, stays), folder_in(corpus, other)
    with user_path(corpus):
        event = record(kept, part, by)
    _answer(part, event, "merged already", as_json)


def split(
    bucket: Bucket,
    cases: Annotated[list[str], typer.Argument(metavar="CASE...", help="Cases to take out of it.")],
    *,
    corpus: Corpus,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Make cases of a bucket a bucket of their own: they are another cause.

    Later failures whose programs have all that those of the cases have in common are the new
    bucket's. `attnfuzz undo BUCKET` makes the new one a part of the old.

    `attnfuzz split 3f9a 02c1d0 --corpus found`
    """
    from attnfuzz.corpus.decisions.splitting import split as record
    from attnfuzz.fuzz.deciding import folder_in

    with user_path(corpus):
        made = record(folder_in(corpus, bucket), cases, by)
    if as_json:
        emit({"made": str(made)})
    else:
        say(f"{made}")


def undo(
    bucket: Bucket,
    *,
    corpus: Corpus,
    event: Annotated[
        str | None,
        typer.Option(
            help="The event to take back: its name in the folder `history`, or how that begins. "
            "Default: what was decided last."
        ),
    ] = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Take back what was decided on a bucket, merged into another or split off it.

    That is an event too, and can be taken back by its name. What was decided before holds again.

    `attnfuzz undo 3f9a --corpus found`
    """
    from attnfuzz.corpus.decisions.undoing import undo as record
    from attnfuzz.fuzz.deciding import folder_in

    folder = folder_in(corpus, bucket)
    with user_path(corpus):
        taken_back, latest = record(folder, event, by)
    _answer(folder, latest, f"taken back already: {taken_back}", as_json)


def _answer(folder: Path, event: Event | None, otherwise: str, as_json: bool) -> None:
    """Says what was written down in the history of the bucket in `folder`, and where it stands
    now."""
    from attnfuzz.corpus.decisions.status import status

    now = status(folder, date.today())
    if as_json:
        emit({"event": event.name if event else None, "status": now.label, "path": str(folder)})
        return
    say(f"{folder.name}: {event or otherwise}")
    if event is not None and event.said.kind == "undo":
        say(f"now: {now.label or 'nothing decided'}")
    elif event is not None and now.also:
        say(f"now: {now.label}")
