"""Deciding from the pages: what a form does, and who may not."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import buckets_in, case_folders
from attnfuzz.corpus.decisions.deciding import decide, verdict
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.status import status
from attnfuzz.fuzz.dashboard.permission import Permission
from attnfuzz.fuzz.dashboard.server import application
from attnfuzz.fuzz.dashboard.sources import sources
from tests.support.browser import dashboard
from tests.support.one_bucket import write_one
from tests.support.recorded_campaign import CASE, record_campaign

HERE = "http://127.0.0.1:8765"
OURS = {"origin": HERE, "sec-fetch-site": "same-origin"}
TODAY = date.today()


class People:
    """A corpus of two buckets, the pages of it, and a browser that has the key."""

    def __init__(self, corpus: Path) -> None:
        self.corpus = corpus
        self.bucket: Bucket = write_one(corpus, 1, 2, 3)
        self.other: Bucket = write_one(corpus, 4, message="something else")
        self.folder = corpus / self.bucket.folder
        self.permission = Permission()
        self.served = application(sources([corpus]), permission=self.permission)
        self.client = self.browser()
        self.client.get("/decide", params={"key": self.permission.key})

    def browser(self) -> TestClient:
        return TestClient(self.served, base_url=HERE)

    def page(self) -> str:
        answer = self.client.get(f"/0/buckets/{self.bucket.id}")
        assert answer.status_code == 200
        return answer.text

    def form(self, **fields: str) -> dict[str, str]:
        """What a form of the page, as it is now, sends."""
        found = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.page()))
        return {name: found[name] for name in ("token", "looked_at")} | fields

    def send(self, action: str, status: int = 303, /, **fields: str) -> str:
        address = f"/0/buckets/{self.bucket.id}/{action}"
        answer = self.client.post(
            address, data=self.form() | fields, headers=OURS, follow_redirects=False
        )
        assert answer.status_code == status, answer.text
        return answer.headers.get("location", answer.text)

    def told(self) -> str:
        return status(self.folder, TODAY).label


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    made = People(tmp_path / "corpus")
    with made.client:
        yield made


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"verdict": "reported", "url": "https://example.org/1"},
            "reported: https://example.org/1",
        ),
        ({"verdict": "not-a-bug", "why": "so documented", "by": "Ada"}, "not a bug: so documented"),
        ({"verdict": "wont-fix", "until": "2999-01-31"}, "won't fix, until 2999-01-31"),
        ({"verdict": "fixed-in", "version": "2.15"}, "fixed in 2.15"),
        ({"verdict": "duplicate-of", "other": "OTHER"}, "duplicate of "),
    ],
)
def test_a_form_decides(people: People, fields: dict[str, str], told: str) -> None:
    fields = {name: value.replace("OTHER", people.other.id[:6]) for name, value in fields.items()}
    assert people.send("decide", **fields).endswith(f"/buckets/{people.bucket.id}#decide")
    assert people.told().startswith(told)
    for shown in (people.page(), people.client.get("/0/buckets").text):
        assert told in html.unescape(shown)
    (event,) = history(people.folder)
    assert event.said.by == fields.get("by")


def test_a_form_merges_splits_and_takes_back(people: People) -> None:
    people.send("merge", other=people.other.id, by="Ada")
    assert status(people.folder, TODAY).merged_into == people.other.id
    (event,) = history(people.folder)
    people.send("undo", event=event.name, by="Bob")
    assert status(people.folder, TODAY).merged_into is None
    case = case_folders(people.folder)[0].name
    shown = people.send("split", case=case)
    made = buckets_in(people.corpus)[shown.split("/")[-1].removesuffix("#decide")]
    assert [one.name for one in case_folders(made)] == [case]
    assert len(case_folders(people.folder)) == 2


@pytest.mark.parametrize(
    ("action", "fields", "told"),
    [
        ("decide", {"verdict": "reported"}, "expected the address of the public thread"),
        ("decide", {"verdict": "reported", "url": "javascript:x"}, "url: "),
        ("decide", {"verdict": "not-a-bug"}, "why"),
        ("decide", {"verdict": "wont-fix", "until": "soon"}, "a date such as"),
        ("decide", {"verdict": "fixed-in", "version": "new"}, "a version such as 2.14"),
        ("decide", {"verdict": "fixed-in"}, "expected the version of torch"),
        (
            "decide",
            {"verdict": "duplicate-of", "other": "../../etc"},
            "../../etc: expected a bucket",
        ),
        ("decide", {"verdict": "<b>"}, "&lt;b&gt;"),
        ("merge", {}, "expected the bucket"),
        ("merge", {"other": "ffff"}, "ffff: expected a bucket"),
        ("split", {}, "expected at least one case"),
        ("split", {"case": "zz"}, "zz: expected one case"),
        ("undo", {"event": "9999"}, "9999: expected one event"),
    ],
)
def test_what_cannot_be_is_one_sentence_in_the_page(
    people: People, action: str, fields: dict[str, str], told: str
) -> None:
    shown = people.send(action, 409, **fields)
    (refused,) = re.findall(r'<p class="refused" role="alert">([^\n]*)</p>', shown)
    assert told in refused and "Traceback" not in shown
    assert not history(people.folder) and "<h2>Decide</h2>" in shown


def test_what_was_filled_in_is_there_again(people: People) -> None:
    shown = people.send("decide", 409, verdict="not-a-bug", by='Ada "<A>"', until="2999-01-01")
    assert 'value="Ada &#34;&lt;A&gt;&#34;"' in shown and 'value="2999-01-01"' in shown
    assert "<option selected>not-a-bug</option>" in shown


def test_who_has_not_seen_what_was_decided_looks_again(people: People) -> None:
    seen = people.form()
    decide(people.folder, verdict("not-a-bug", TODAY, why="documented", by="Ada"))
    for action, fields in (
        ("decide", {"verdict": "wont-fix"}),
        ("merge", {"other": people.other.id}),
        ("split", {"case": case_folders(people.folder)[0].name}),
    ):
        shown = people.send(action, 409, **seen, **fields)
        assert "since you looked at it: " in shown and "not a bug: documented" in shown
    people.send("decide", verdict="wont-fix")
    assert [one.said.kind for one in history(people.folder)] == ["not-a-bug", "wont-fix"]


def test_people_who_decide_at_once_lose_nothing(people: People) -> None:
    """Each either has decided or is told that somebody else has, and what."""
    form = people.form()
    address = f"/0/buckets/{people.bucket.id}/decide"

    def send(number: int) -> int:
        fields = form | {"verdict": "wont-fix", "why": f"{number}", "by": f"person {number}"}
        answer = people.client.post(address, data=fields, headers=OURS, follow_redirects=False)
        return answer.status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert sorted(answers) == [303] + [409] * 7
    (event,) = history(people.folder)
    assert event.said.by == f"person {answers.index(303)}"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": HERE, "sec-fetch-site": "same-site"},
        {"origin": HERE, "sec-fetch-site": "cross-site"},
        {"origin": HERE, "host": "evil.example"},
        {"origin": "http://evil.example", "host": "evil.example"},
    ],
)
def test_a_request_of_another_site_writes_nothing(people: People, headers: dict[str, str]) -> None:
    form = people.form(verdict="wont-fix")
    address = f"/0/buckets/{people.bucket.id}/decide"
    answer = people.client.post(address, data=form, headers=headers)
    assert answer.status_code in (400, 403)
    assert not history(people.folder)


def test_without_the_key_or_the_token_nothing_is_written(people: People) -> None:
    form = people.form(verdict="wont-fix")
    address = f"/0/buckets/{people.bucket.id}/decide"
    with people.browser() as stranger:
        shown = stranger.get(f"/0/buckets/{people.bucket.id}").text
        assert "<form" not in shown and people.permission.token not in shown
        assert "open the address with the key" in shown
        assert stranger.post(address, data=form, headers=OURS).status_code == 403
        assert stranger.get("/decide", params={"key": "x"}).status_code == 403
        assert not stranger.cookies
    for token in ("", "x", "ü", people.permission.key):
        answer = people.client.post(address, data=form | {"token": token}, headers=OURS)
        assert answer.status_code == 403
    assert not history(people.folder)


def test_the_key_is_kept_from_scripts_and_other_sites(people: People) -> None:
    with people.browser() as client:
        params = {"key": people.permission.key}
        answer = client.get("/decide", params=params, follow_redirects=False)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert people.permission.key not in answer.headers["location"]
    assert people.permission.key not in repr(people.permission)


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"a=" + b"x" * 70_000, "application/x-www-form-urlencoded", 413),
        (b"a=1&" * 2000, "application/x-www-form-urlencoded", 400),
        (b"\xff\xfe", "application/x-www-form-urlencoded", 400),
        (b"{}", "application/json", 415),
        (b"", "text/plain", 415),
    ],
)
def test_what_is_no_form_is_refused(people: People, content: bytes, kind: str, status: int) -> None:
    address = f"/0/buckets/{people.bucket.id}/decide"
    headers = OURS | {"content-type": kind}
    answer = people.client.post(address, content=content, headers=headers)
    assert answer.status_code == status and "Traceback" not in answer.text


def test_a_server_that_only_reads_has_no_forms(people: People) -> None:
    form = people.form(verdict="wont-fix")
    with TestClient(application(sources([people.corpus])), base_url=HERE) as client:
        address = f"/0/buckets/{people.bucket.id}"
        assert "<form" not in client.get(address).text
        assert client.post(f"{address}/decide", data=form, headers=OURS).status_code == 404
        assert client.get("/decide", params={"key": people.permission.key}).status_code == 404
    assert not history(people.folder)


@pytest.mark.slow
def test_the_command_prints_the_address_with_the_key(people: People) -> None:
    with dashboard(people.corpus, decide=True) as address, httpx2.Client() as client:
        assert client.get(address).status_code == 303
        page = client.get(f"{address.partition('/decide')[0]}/0/buckets/{people.bucket.id}").text
        (token,) = set(re.findall(r'name="token" value="([0-9a-f]{64})"', page))
        assert token != people.permission.token, "each start has a key of its own"


def test_a_campaign_is_not_decided_on(tmp_path: Path) -> None:
    directory = record_campaign(tmp_path / "night", count=1)
    permission = Permission()
    served = application(sources([directory]), permission=permission)
    with TestClient(served, base_url=HERE) as client:
        client.get("/decide", params={"key": permission.key})
        shown = client.get(f"/0/buckets/{CASE}").text
        assert f"attnfuzz adopt {directory} --into CORPUS" in shown and "<form" not in shown
        form = {"token": permission.token, "verdict": "wont-fix"}
        answer = client.post(f"/0/buckets/{CASE}/decide", data=form, headers=OURS)
        assert answer.status_code == 404
