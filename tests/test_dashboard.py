"""The pages as a client without a browser sees them: what they show, refuse and never do."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from attnfuzz.corpus.store.store import DATABASE, Store
from attnfuzz.fuzz.campaign.claim import claim
from attnfuzz.fuzz.dashboard.html_report import report
from attnfuzz.fuzz.dashboard.server import application
from attnfuzz.fuzz.dashboard.sources import Source, sources
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.model.codec import program_id
from tests.support.hostile_campaign import HOSTILE, MARK, record_hostile
from tests.support.recorded_campaign import CASE, CRASH, record_campaign
from tests.support.shard_reports import Report, program, wrong

SHIPPED = Path(__file__).resolve().parent.parent / "corpus" / "cases"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_campaign(tmp_path_factory.mktemp("campaign"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_hostile(tmp_path_factory.mktemp("hostile"))


def client_of(shown: list[Source], hosts: list[str] | None = None) -> TestClient:
    """A client that asks for the server as a browser on the same machine would."""
    return TestClient(application(shown, hosts or []), base_url="http://127.0.0.1:8765")


@pytest.fixture
def client(campaign: Path) -> Iterator[TestClient]:
    with client_of(sources([campaign, SHIPPED])) as opened:
        yield opened


def page(client: TestClient, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status, answer.text
    return answer.text


def test_the_first_page_names_all_that_is_shown(client: TestClient, campaign: Path) -> None:
    shown = page(client, "/")
    assert str(campaign) in shown and str(SHIPPED) in shown


def test_one_source_is_shown_at_once(campaign: Path) -> None:
    with client_of(sources([campaign])) as client:
        assert client.get("/", follow_redirects=False).headers["location"] == "/0/"
    with client_of(sources([SHIPPED])) as client:
        assert client.get("/").url.path == "/0/buckets"


def test_the_campaign_as_a_whole(client: TestClient) -> None:
    shown = page(client, "/0/")
    for words in ("120 in 12 shards", "6 new, 0 known before", "6 done, 1 flaky, 1 new", "graph"):
        assert words in shown
    assert shown.count("<img") == 5
    assert "CPU: new programs 21 s" in shown and "25 s" in shown


def test_buckets_are_listed_worst_first_filtered_and_sorted(client: TestClient) -> None:
    def ids(query: str = "") -> list[str]:
        body = page(client, f"/0/buckets{query}").partition("In no bucket")[0]
        return re.findall(r'href="/0/buckets/(\w+)"', body)

    every = ids()
    assert len(every) == 6 and every.index(CASE) < every.index(CRASH)
    assert CASE in ids("?kind=wrong_result") and CRASH not in ids("?kind=wrong_result")
    of_sdpa = [one for one in every if "-sdpa-" in next(SHIPPED.glob(f"{one}-*")).name]
    assert CASE in of_sdpa and CRASH not in of_sdpa and ids("?q=SDPA") == of_sdpa
    assert sorted(ids("?sort=by+title")) == sorted(every) != ids("?sort=by+title")
    assert ids("?kind=nothing") == []
    assert ids("?page=2") == []
    assert ids("?page=-1&sort=%00&layer=%22") == []


def test_a_bucket_tells_everything(client: TestClient) -> None:
    shown = page(client, f"/0/buckets/{CASE}")
    for words in (
        "off by 4.19, 1,143,472 times",
        "fails in 5/5 fresh runs",
        "Where out is off",
        "Found, and minimized",
        '<td class="taken">seed: 7</td>',
        "flex <span",
        "fails otherwise",
        "They share the key",
        "layout.q.expand",
        "1 failing program of the campaign belongs to it",
        'data-copy="b02951761-script"',
    ):
        assert words in shown, words
    assert shown == page(client, f"/0/buckets/{CASE[:4]}")


def test_a_corpus_has_the_same_page(client: TestClient) -> None:
    assert "off by 4.19" in page(client, f"/1/buckets/{CASE}")
    assert "ValueError is raised by inductor" in page(client, f"/1/buckets/{CRASH}")
    assert client.get("/1/programs").url.path == "/1/buckets"
    assert "None is recorded" in page(client, "/1/replays")


def test_programs_are_listed_and_each_has_its_source(client: TestClient) -> None:
    listed = page(client, "/0/programs?kind=compile_error")
    (first, *_) = re.findall(r'href="/0/programs/(\w{12})"', listed)
    shown = page(client, f"/0/programs/{first}")
    assert "rendered from the program just now" in shown and ">attention</span>" in shown
    assert "compile 2.50 s" in shown and "candidates tried" in shown
    flaky = page(client, "/0/programs?state=flaky")
    assert program_id(program(101)) in flaky and program_id(program(102)) not in flaky
    corpus = page(client, f"/1/buckets/{CASE}")
    (case,) = re.findall(r'href="/1/programs/(\w{12})"', corpus)
    assert CASE in page(client, f"/1/programs/{case}")


def test_replays_are_shown_over_time(client: TestClient) -> None:
    shown = page(client, "/0/replays")
    assert "5 as recorded, 1 fixed" in shown and "2.14.0" in shown and shown.count("<img") == 1


@pytest.mark.parametrize(
    "address",
    ["/2/", "/0/nothing", "/0/buckets/ffffffff", "/0/programs/zz", "/x/", "/0/../../etc/passwd",
     "/0/buckets/..%2f..%2fetc", "/static/../server.py", "/0/programs/%00"],
)  # fmt: skip
def test_what_is_not_there_is_not_found(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert "root:" not in answer.text and "Traceback" not in answer.text


def test_a_browser_is_told_to_run_nothing_else(client: TestClient) -> None:
    for address in ("/", "/0/", "/9/", "/static/page.js", f"/0/buckets/{CASE}"):
        headers = client.get(address).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8765", 200), ("localhost", 200), ("[::1]:8765", 200), ("evil.example", 400),
     ("127.0.0.1.evil.example", 400), ("", 400), ("night.lan", 200)],
)  # fmt: skip
def test_only_known_hosts_are_answered(campaign: Path, host: str, status: int) -> None:
    with client_of(sources([campaign]), ["night.lan"]) as client:
        assert client.get("/0/", headers={"host": host}).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(client: TestClient, method: str) -> None:
    assert client.request(method, f"/0/buckets/{CASE}").status_code == 405


def test_looking_leaves_a_campaign_as_it_was(campaign: Path) -> None:
    def everything() -> dict[str, bytes]:
        return {str(one): one.read_bytes() for one in sorted(campaign.rglob("*")) if one.is_file()}

    before = everything()
    with client_of(sources([campaign])) as client:
        for address in ("/0/", "/0/buckets", "/0/programs", f"/0/buckets/{CASE}", "/0/replays"):
            page(client, address)
    assert everything() == before


def test_what_a_running_campaign_adds_is_shown_and_nobody_waits(tmp_path: Path) -> None:
    record_campaign(tmp_path, count=1)
    with (
        claim(tmp_path) as claimed,
        Store(tmp_path) as store,
        client_of(sources([tmp_path])) as client,
    ):
        claimed.begun = True
        shown = page(client, "/0/")
        assert "120 in 12 shards" in shown and ">running</span>" in shown
        store.record_shard(Report(12, failures=[(program(5), wrong("dv"))]))
        assert "130 in 13 shards" in page(client, "/0/")
        assert program_id(program(5)) in page(client, "/0/programs")
        with sqlite3.connect(tmp_path / DATABASE, timeout=0, isolation_level=None) as database:
            database.execute("BEGIN EXCLUSIVE")
            database.execute("ROLLBACK")


def test_a_damaged_campaign_is_one_sentence(tmp_path: Path) -> None:
    record_campaign(tmp_path, count=1)
    shown = sources([tmp_path])
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute("UPDATE buckets SET data='[]'")
    with client_of(shown) as client:
        answer = page(client, "/0/buckets", 500)
        assert "buckets: row" in answer and "Traceback" not in answer


def test_what_is_neither_a_campaign_nor_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a campaign"):
        sources([tmp_path])


class _Read(HTMLParser):
    """The elements and attributes of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def harmless(text: str) -> _Read:
    """Reads a page, in which nothing of `HOSTILE` may be anything but text."""
    read = _Read(text)
    assert {"iframe", "object", "embed", "base", "svg"}.isdisjoint(read.tags)
    assert not [name for name, _ in read.attributes if name.startswith("on") or name == "style"]
    assert not [value for _, value in read.attributes if value.lower().startswith("javascript:")]
    assert not [one for one in text if not one.isprintable() and one not in "\n\t"]
    assert len(text) < 4_000_000
    return read


@pytest.mark.slow
def test_a_hostile_campaign_is_only_text(hostile: Path) -> None:
    (shown,) = sources([hostile])
    with client_of([shown]) as client:
        lists = ["/0/", "/0/buckets", "/0/programs", "/0/replays"]
        found = {one for address in lists for one in _links(page(client, address))}
        assert len(found) > 4
        told = [harmless(page(client, address)) for address in [*lists, *sorted(found)]]
    assert sum(MARK in one.text for one in told) > 4
    assert all(one.tags.count("script") == 1 for one in told)


def _links(text: str) -> list[str]:
    return re.findall(r'href="(/0/(?:buckets|programs)/[^"?]+)"', text)


@pytest.mark.slow
def test_a_hostile_report_is_only_text(hostile: Path) -> None:
    (shown,) = sources([hostile])
    read = harmless(report(shown))
    shown.close()
    assert read.tags.count("script") == read.tags.count("style") == 1
    assert MARK in read.text
    addresses = [value for name, value in read.attributes if name in ("src", "href")]
    assert all(one.startswith(("data:image/svg+xml;base64,", "#", "https://")) for one in addresses)


def test_a_report_has_a_section_for_the_worst(campaign: Path) -> None:
    (shown,) = sources([campaign])
    whole, some = report(shown), report(shown, most=2)
    shown.close()
    assert whole.count("<article") == 6 and some.count("<article") == 2
    assert "4 buckets of the list have no section below" in some
    for name in re.findall(r'href="#(bucket-\w+)"', whole):
        assert f'id="{name}"' in whole
    assert "http://" not in re.sub(r"data:[^\"]+", "", whole)


def test_a_source_is_read_again_only_when_it_has_changed(campaign: Path) -> None:
    (shown,) = sources([campaign])
    made: list[int] = []

    def make(source: Source) -> int:
        made.append(1)
        return len(made)

    assert [shown.remember("x", lambda: make(shown)) for _ in range(3)] == [1, 1, 1]
    (campaign / "corpus" / "another").mkdir()
    try:
        assert shown.remember("x", lambda: make(shown)) == 2
    finally:
        (campaign / "corpus" / "another").rmdir()


def test_every_hostile_text_holds_the_mark() -> None:
    assert all(MARK in text for text in HOSTILE)
