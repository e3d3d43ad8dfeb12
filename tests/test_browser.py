"""Every page in a real browser: of a recorded campaign, of one that runs, and of a hostile one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.claim import claim
from attnfuzz.fuzz.dashboard.html_report import write_report
from attnfuzz.fuzz.dashboard.sources import sources
from tests.support.browser import MISSING, browser, chromium, dashboard
from tests.support.hostile_campaign import MARK, record_hostile
from tests.support.one_bucket import write_one
from tests.support.recorded_campaign import CASE, CRASH, record_campaign
from tests.support.shard_reports import Report, program, wrong

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason=MISSING)]

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A recorded campaign, one that will run, and a hostile one."""
    top = tmp_path_factory.mktemp("campaigns")
    return (
        record_campaign(top / "recorded"),
        record_campaign(top / "running", count=1),
        record_hostile(top / "hostile"),
    )


@pytest.fixture(scope="module")
def address(folders: tuple[Path, Path, Path]) -> Iterator[str]:
    with dashboard(*folders) as served:
        yield served


@pytest.fixture
def page(opened: Browser) -> Iterator[Page]:
    """A page on which nothing may be refused, raised or asked of elsewhere."""
    context = opened.new_context(viewport=WIDE)  # type: ignore[arg-type]
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    made = context.new_page()
    trouble: list[str] = []
    made.on("console", lambda said: trouble.append(said.text) if said.type == "error" else None)
    made.on("pageerror", lambda error: trouble.append(str(error)))
    made.on("dialog", lambda dialog: trouble.append(dialog.message))
    made.on("request", lambda asked: None if _ours(asked.url) else trouble.append(asked.url))
    made.add_init_script("globalThis.owned = () => alert('owned')")
    yield made
    context.close()
    assert not trouble


def _ours(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "file:"))


def text(page: Page) -> str:
    return page.locator("main").inner_text()


def fits(page: Page) -> bool:
    """Nothing but what scrolls by itself is wider than the window."""
    wide: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return wide


def pictures(page: Page) -> list[Any]:
    """The width of each picture as it was drawn, 0 where it was not."""
    widths: list[Any] = page.eval_on_selector_all(
        "img",
        "all => Promise.all(all.map(one => one.decode().then(() => one.naturalWidth, () => 0)))",
    )
    return widths


def test_a_walk_through_a_recorded_campaign(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="recorded").click()
    assert "120 in 12 shards" in text(page)
    assert len(pictures(page)) == 5 and all(pictures(page))
    page.get_by_text("All of them").click()
    assert page.get_by_role("cell", name="graph").is_visible()

    page.get_by_role("link", name="Buckets", exact=True).click()
    rows = page.locator("table.list").first.locator("tbody tr")
    assert rows.count() == 6
    page.get_by_label("kind").select_option("wrong_result")
    page.get_by_label("order").select_option("by title")
    page.get_by_role("button", name="Show").click()
    kinds = rows.locator("td:nth-child(2)").all_inner_texts()
    assert set(kinds) == {"wrong_result"} and "kind=wrong_result" in page.url

    page.get_by_role("link", name=CASE).click()
    assert "off by 4.19" in text(page) and page.title().startswith("wrong `out`")
    assert all(pictures(page))
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith('"""wrong_result at eager') and "assert error" in copied
    background = "element => getComputedStyle(element).backgroundColor"
    taken, equal = page.locator("td.taken").first, page.locator(".compared td:not([class])").first
    assert taken.evaluate(background) != equal.evaluate(background)

    page.get_by_role("link", name=re.compile("^[0-9a-f]{12}$")).last.click()
    assert "Phases" in text(page) and "def attention" in text(page) and all(pictures(page))
    page.get_by_role("link", name="Programs").click()
    assert "8 programs, newest first" in text(page)
    page.get_by_role("link", name="Replays").click()
    assert "1 fixed" in text(page) and all(pictures(page))


def test_the_pages_of_a_campaign_follow_it(
    page: Page, address: str, folders: tuple[Path, Path, Path]
) -> None:
    with claim(folders[1]) as claimed, Store(folders[1]) as store:
        claimed.begun = True
        page.goto(f"{address}/1/")
        assert "running" in page.locator("header").inner_text()
        assert "120 in 12 shards" in text(page)
        store.record_shard(Report(12, failures=[(program(5), wrong("dv"))]))
        page.get_by_text("130 in 13 shards").wait_for(timeout=20_000)
        page.goto(f"{address}/1/programs")
        store.record_shard(Report(13, failures=[(program(6), wrong("dv"))]))
        page.get_by_text("5 programs, newest first").wait_for(timeout=20_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_readable_on_a_phone(opened: Browser, address: str, scheme: Any) -> None:
    context = opened.new_context(viewport=PHONE, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    for path in ("/0/", "/0/buckets", f"/0/buckets/{CASE}", f"/0/buckets/{CRASH}", "/0/programs"):
        page.goto(f"{address}{path}")
        assert fits(page), path
    luminance = page.evaluate(
        "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    )
    assert (luminance < 60) == (scheme == "dark")
    context.close()


def test_a_hostile_campaign_shows_as_text(page: Page, address: str) -> None:
    for path in ("/2/", "/2/buckets", "/2/programs"):
        page.goto(f"{address}{path}")
        assert fits(page), path
    page.goto(f"{address}/2/buckets")
    found = page.locator("table.list").first.locator("a.id").all_inner_texts()
    assert len(found) == 3
    for name in found:
        page.goto(f"{address}/2/buckets/{name}")
        page.locator("summary").evaluate_all("all => all.forEach(one => one.click())")
        if name != CASE:
            assert f"<script>{MARK}</script>" in text(page)


@pytest.mark.parametrize("which", [0, 2], ids=["recorded", "hostile"])
def test_the_report_is_one_file_that_needs_nothing(
    page: Page, folders: tuple[Path, Path, Path], tmp_path: Path, which: int
) -> None:
    (source,) = sources([folders[which]])
    write_report(source, tmp_path / "report.html")
    source.close()
    page.goto((tmp_path / "report.html").as_uri())
    assert fits(page)
    ground = page.evaluate("getComputedStyle(document.querySelector('pre')).borderTopStyle")
    assert ground == "solid"  # the style sheet is taken
    assert all(pictures(page))
    page.get_by_role("link", name=CASE).click()
    assert page.locator(f"#bucket-{CASE}").is_visible()
    page.locator(f"#bucket-{CASE}").get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()


def test_a_person_decides_without_a_script(opened: Browser, tmp_path: Path) -> None:
    """In a browser that runs no scripts: a decision, one that cannot be, a split and an undo."""
    corpus = tmp_path / "corpus"
    bucket = write_one(corpus, 1, 2)
    context = opened.new_context(viewport=WIDE, java_script_enabled=False)  # type: ignore[arg-type]
    page = context.new_page()
    with dashboard(corpus, decide=True) as address:
        page.goto(address)
        assert "key" not in page.url
        page.get_by_role("link", name=bucket.id).click()
        page.get_by_label("verdict").select_option("not-a-bug")
        page.get_by_role("button", name="Decide").click()
        assert "why" in page.get_by_role("alert").inner_text()
        decide = page.locator("form[action$='/decide']")
        decide.get_by_label("why").fill("<b>documented</b>")
        decide.get_by_label("by").fill("Ada")
        page.get_by_role("button", name="Decide").click()
        assert page.locator("#decide > p").first.inner_text().startswith("not a bug: <b>")
        page.get_by_role("checkbox").first.check()
        page.get_by_role("button", name="Split off").click()
        assert "split off from" in text(page)
        page.goto(f"{address.partition('/decide')[0]}/0/buckets/{bucket.id}")
        page.get_by_role("button", name="Take back").first.click()
        assert "takes back" in text(page)
    context.close()
    assert [one.said.kind for one in history(corpus / bucket.folder)] == [
        "not-a-bug", "split-into", "undo"
    ]  # fmt: skip
