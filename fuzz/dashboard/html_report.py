"""A campaign or a corpus as one file: to mail, or to keep with what a build made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.files import write_atomically
from attnfuzz.fuzz.dashboard.details import BucketDetails, bucket_details
from attnfuzz.fuzz.dashboard.links import FileLinks
from attnfuzz.fuzz.dashboard.pages import apart_caption, night_values
from attnfuzz.fuzz.dashboard.queries import found, shown
from attnfuzz.fuzz.dashboard.rendering import hash_of, render, script, style
from attnfuzz.fuzz.dashboard.sources import Source
from attnfuzz.fuzz.environment import version
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.report.tables import Row
from attnfuzz.generators.reading.files import ProgramError

BUCKETS = 200
"""Buckets that have a section of their own, the worst."""


def write_report(source: Source, file: Path, most: int = BUCKETS) -> None:
    """Writes the report on `source` to `file`, whose folder is made where it is missing; `most`
    buckets have a section. Raises OSError, StoreError, CaseError or ProgramError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, report(source, most))


def report(source: Source, most: int = BUCKETS) -> str:
    """The report as HTML that needs nothing else, and may load nothing else."""
    all_found = found(source)
    buckets, unreadable = list[BucketDetails](), list[tuple[str, str]]()
    for row in all_found.rows[:most]:
        try:
            buckets.append(bucket_details(source, row.id))
        except (CaseError, ProgramError, UserError) as error:
            unreadable.append((row.id, str(error)))
    links = FileLinks(frozenset(one.page.row.id for one in buckets))
    sheet, code = style(), script()
    policy = (
        f"default-src 'none'; style-src {hash_of(sheet)}; script-src {hash_of(code)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )

    def address(row: Row) -> str:
        return links.bucket(source, row.id)

    values: dict[str, Any] = {"night": None}
    if source.is_campaign:
        values = night_values(source)
    return render(
        "report.html",
        **values,
        source=source,
        links=links,
        policy=Markup(policy),
        style=Markup(sheet),
        script=Markup(code),
        rows=shown(source, all_found.rows),
        apart=all_found.apart,
        apart_caption=apart_caption(all_found),
        address=address,
        buckets=buckets,
        unreadable=unreadable,
        left_out=max(0, len(all_found.rows) - most),
        version=version("attnfuzz"),
    )
