"""The pages: what each of them shows of a source, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from attnfuzz.corpus.decisions.deciding import VERDICTS
from attnfuzz.fuzz.dashboard.actions import Decided, decided
from attnfuzz.fuzz.dashboard.asked import (
    FILTERS,
    KINDS,
    ORDERS,
    PER_PAGE,
    STATES,
    asked,
    choices,
    filtered,
    page_number,
    pages,
    wanted,
)
from attnfuzz.fuzz.dashboard.details import bucket_details, program_details
from attnfuzz.fuzz.dashboard.links import ServedLinks
from attnfuzz.fuzz.dashboard.permission import ASKS_FOR_KEY, Form, one
from attnfuzz.fuzz.dashboard.pictures import of_night
from attnfuzz.fuzz.dashboard.queries import Found, failures, found, night, shown
from attnfuzz.fuzz.dashboard.rendering import render
from attnfuzz.fuzz.dashboard.replays import picture, replays
from attnfuzz.fuzz.dashboard.sources import Source
from attnfuzz.fuzz.environment import version
from attnfuzz.fuzz.report.counted import counted

LINKS = ServedLinks()
SOURCE_PAGES = {"": "Campaign", "buckets": "Buckets", "programs": "Programs", "replays": "Replays"}
OF_A_CORPUS = ("buckets", "replays")

Query = Mapping[str, str]


def home(sources: list[Source]) -> str:
    """The list of all sources."""
    return render("home.html", **_common(None, "", several=False), all=sources)


def night_page(source: Source, query: Query, several: bool) -> str:
    """A campaign as a whole."""
    common = _common(source, "", several, live=True)
    return render("night.html", **common, **night_values(source))


def night_values(source: Source) -> dict[str, Any]:
    """What `_night.html` shows."""
    whole = night(source)
    return {
        "night": whole,
        "pictures": source.remember("pictures", partial(of_night, whole)),
        "features": _most_first(whole.totals.features),
        "rejections": _most_first(whole.totals.rejections),
    }


def buckets_page(source: Source, query: Query, several: bool) -> str:
    """The list of buckets."""
    common = _common(source, "buckets", several, live=True)
    given, number = asked(query, [*FILTERS, "q", "sort"]), page_number(query)
    all_found = found(source)
    rows = filtered(all_found.rows, given)
    start = (number - 1) * PER_PAGE

    def address(page: int) -> str:
        return LINKS.source(source, "buckets", **given, page=page)

    return render(
        "buckets.html",
        **common,
        rows=shown(source, rows[start : start + PER_PAGE]),
        shown_of=f"{len(rows):,} of {counted(len(all_found.rows), 'bucket')}",
        choices=choices(all_found.rows),
        orders=list(ORDERS),
        asked=given,
        pages=pages(number, len(rows), address),
        address=lambda row: LINKS.bucket(source, row.id),
        address_apart=lambda row: LINKS.program(source, row.id),
        apart=filtered(all_found.apart, given),
        apart_caption=apart_caption(all_found),
    )


def apart_caption(all_found: Found) -> str:
    """How many causes have no bucket."""
    told = counted(len(all_found.apart), "key")
    left_out = all_found.apart_left_out
    return f"{told}; {left_out:,} more are not listed" if left_out else told


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """A bucket's page where the server lets people decide: the `token` of its forms, "" for a
    browser that may not, and what was `refused` of a `form` that was sent."""

    token: str
    refused: str = ""
    form: Form = field(default_factory=dict)
    stands: Decided | None = None
    asks: str = ASKS_FOR_KEY
    verdicts: Sequence[str] = VERDICTS

    def given(self, name: str) -> str:
        """What was filled in."""
        return one(self.form, name) or ""


def bucket_page(
    source: Source, query: Query, several: bool, name: str, deciding: Deciding | None = None
) -> str:
    """One bucket."""
    details, adopting = bucket_details(source, name), ""
    refused = deciding.refused if deciding else ""
    if source.is_campaign:
        adopting = f"attnfuzz adopt {source.name} --into CORPUS" if deciding else ""
        deciding = None
    elif deciding is not None:
        deciding = replace(deciding, stands=decided(source.corpus, details.page.row.id))
    return render(
        "bucket.html",
        **_common(source, "buckets", several),
        details=details,
        deciding=deciding,
        adopting=adopting,
        refused=refused,
    )


def programs_page(source: Source, query: Query, several: bool) -> str:
    """The list of a campaign's failing programs."""
    common = _common(source, "programs", several, live=True)
    given, number = asked(query, ["kind", "state", "bucket"]), page_number(query)
    some = failures(source, wanted(given), (number - 1) * PER_PAGE, PER_PAGE)

    def address(page: int) -> str:
        return LINKS.source(source, "programs", **given, page=page)

    return render(
        "programs.html",
        **common,
        listed=some,
        asked=given,
        choices={"kind": KINDS, "state": STATES},
        pages=pages(number, some.total, address),
    )


def program_page(source: Source, query: Query, several: bool, name: str) -> str:
    """One failing program."""
    details = program_details(source, name)
    tab = "programs" if source.is_campaign else "buckets"
    return render("program.html", **_common(source, tab, several), details=details)


def replays_page(source: Source, query: Query, several: bool) -> str:
    """What became of a corpus when it was replayed."""
    common = _common(source, "replays", several, live=True)
    recorded = replays(source.corpus)
    shown = picture(recorded) if recorded else None
    return render("replays.html", **common, replays=recorded, picture=shown)


def error_page(status: int, message: str) -> str:
    """What went wrong, in one sentence."""
    common = _common(None, "", several=True)
    return render("error.html", **common, status=status, message=message)


# A page that lists is given its version first: what changes while it is made is shown next.
def _common(source: Source | None, tab: str, several: bool, live: bool = False) -> dict[str, Any]:
    whole = source is None or source.is_campaign
    tabs = [one for one in SOURCE_PAGES.items() if whole or one[0] in OF_A_CORPUS]
    return {
        "source": source,
        "tab": tab,
        "tabs": tabs,
        "several": several,
        "live": f"/{source.number}/events?seen={source.version()}" if live and source else "",
        "links": LINKS,
        "version": version("attnfuzz"),
    }


def _most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


Page = Callable[..., str]
LISTS: dict[str, Page] = {
    "": night_page,
    "buckets": buckets_page,
    "programs": programs_page,
    "replays": replays_page,
}
ONE_OF: dict[str, Page] = {"buckets": bucket_page, "programs": program_page}
