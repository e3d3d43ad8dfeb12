"""What a bucket's page says of each release of torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from starlette.testclient import TestClient

from attnfuzz.corpus.case import case_folders, read_case, write_case
from attnfuzz.corpus.decisions.observing import note_tried
from attnfuzz.fuzz.dashboard.server import application
from attnfuzz.fuzz.dashboard.sources import sources
from attnfuzz.fuzz.report.pages import page
from tests.support.one_bucket import write_one


def test_what_the_cases_do_with_each_release_is_shown(tmp_path: Path) -> None:
    bucket = write_one(tmp_path, 1, 2)
    folder = tmp_path / bucket.folder
    for case in map(read_case, case_folders(folder)):
        write_case(tmp_path, bucket, replace(case, environment={"torch": "2.13.0"}))
    one, other = (case.name for case in case_folders(folder))

    def told() -> dict[str, str]:
        return {each.torch: each.result for each in page(tmp_path, bucket.id).releases}

    assert told() == {"2.13.0": "fails"}
    note_tried(folder, "2.15.0+cpu", {one: "fixed", other: "fixed"}, "2.13.0")
    note_tried(folder, "2.9.1", {one: "as_recorded_in_other_words", other: "fixed"}, "2.13.0")
    note_tried(folder, "2.13.0", {one: "flaky", other: "flaky"}, "2.13.0")
    assert list(told().items()) == [
        ("2.9.1", "1 fails in other words, 1 passes"),
        ("2.13.0", "fails sometimes"),
        ("2.15.0+cpu", "passes"),
    ]
    with TestClient(application(sources([tmp_path])), base_url="http://127.0.0.1") as client:
        shown = client.get(f"/0/buckets/{bucket.id}").text
        listed = client.get("/0/buckets").text
    assert "2.15.0+cpu</th>" in shown and "1 fails in other words, 1 passes" in shown
    assert "tried with torch 2.13.0" in listed
