"""The pictures of the docs: `python -m tests.support.screenshots docs/images`.

Of a recorded campaign that is put together of shipped cases, and of a corpus of a bucket of it, as
Chromium shows them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from datetime import date
from pathlib import Path

from attnfuzz.corpus.case import buckets_in, case_folders
from attnfuzz.corpus.decisions.deciding import decide, verdict
from attnfuzz.corpus.decisions.observing import note_tried
from tests.support.browser import browser, dashboard
from tests.support.recorded_campaign import CASE, record_campaign

WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 860}
PAGES = {
    "campaign": "/0/",
    "buckets": "/0/buckets",
    "bucket": f"/0/buckets/{CASE}",
}


def record() -> tuple[Path, Path]:
    """Writes the campaign and the corpus into the current folder."""
    night, found = Path("campaigns/night"), Path("found")
    record_campaign(night, count=20, shards=60)
    shutil.copytree(night / "corpus", found)
    folder = buckets_in(found)[CASE]
    (case,) = case_folders(folder)
    note_tried(folder, "2.14.0", {case.name: "as_recorded"}, "2.13.0")
    note_tried(folder, "2.15.0", {case.name: "fixed"}, "2.13.0")
    said = verdict("reported", date.today(), url="https://example.org/issues/7", by="Ada")
    decide(folder, said)
    return night, found


def take(into: Path) -> None:
    """Writes the pictures, of a campaign that is recorded in the current folder."""
    night, found = record()
    with browser() as opened, dashboard(night, found, decide=True, here=Path.cwd()) as key:
        page = opened.new_context(viewport=WIDE).new_page()  # type: ignore[arg-type]
        page.goto(key)
        address = key.partition("/decide")[0]
        for name, at in PAGES.items():
            page.goto(address + at)
            page.screenshot(path=into / f"{name}.png")
        page.goto(f"{address}/0/programs?kind=compile_error")
        page.locator("table.list tbody a").first.click()
        page.screenshot(path=into / "program.png")
        page.goto(f"{address}/1/buckets/{CASE}#decide")
        page.get_by_role("heading", name="Releases of torch").scroll_into_view_if_needed()
        page.evaluate("scrollTo(0, document.querySelector('#decide').offsetTop - 420)")
        page.screenshot(path=into / "decide.png")
        small = opened.new_context(viewport=PHONE, color_scheme="dark")  # type: ignore[arg-type]
        phone = small.new_page()
        phone.goto(f"{address}/0/buckets/{CASE}")
        phone.locator("img.heat").first.scroll_into_view_if_needed()
        phone.screenshot(path=into / "bucket-dark.png")


def main() -> None:
    """Writes them into the folder that is named."""
    into = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="attnfuzz-screenshots-") as folder:
        os.chdir(folder)
        take(into)


if __name__ == "__main__":
    main()
