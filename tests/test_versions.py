"""Whose versions: each failure is told with those that it was seen with, and a campaign goes on
with the toolchain that it was begun with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from rich.console import Console

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import find_cases, read_case
from attnfuzz.corpus.store.store import DATABASE, Store
from attnfuzz.fuzz.campaign.interruptions import CampaignError
from attnfuzz.fuzz.campaign.launch import launch
from attnfuzz.fuzz.campaign.resume import check_toolchain
from attnfuzz.fuzz.report.bucket import Page, page_json, page_markdown, page_text
from attnfuzz.fuzz.report.pages import page
from attnfuzz.generators.model.program import Program
from tests.support.fake_campaign import CONFIG, run
from tests.support.fake_pool import FakePool, raised

THEN = {"torch": "2.13.0+cpu", "python": "3.11.7", "triton": "none", "cxx": "g++ 12", "os": "a"}
NOW = {**THEN, "torch": "2.15.0+cpu", "os": "b"}

Run = Callable[..., CompletedProcess[str]]


class Pool(FakePool):
    """A toolchain with the versions given."""

    def __init__(self, versions: dict[str, str]) -> None:
        super().__init__()
        self._versions = versions

    def environment(self, target: str | None = None, hardware: str | None = None) -> dict[str, str]:
        return self._versions


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Bucket]]:
    """A campaign that has gone on with another torch, as it could before that was refused."""
    directory = tmp_path_factory.mktemp("made")
    buckets = run(directory, Pool(THEN), shipped=False)
    with Store(directory) as store:
        store.begin(CONFIG.seed, CONFIG.model_dump(mode="json"), NOW)
        store.add_failure(Program(seed=1), raised("found later"))
        store.add_failure(Program(seed=2), raised("and on a card"), target="virtual-sm90")
    return directory, buckets


def lonely(directory: Path, message: str) -> str:
    """The id of the failure that says so."""
    with Store(directory, create=False) as store:
        rows = {row.program_id: row.outcome.failure for row in store.failures()}
    return next(name for name, failure in rows.items() if message in str(failure))


def test_a_bucket_is_told_with_the_versions_of_its_case(made: tuple[Path, list[Bucket]]) -> None:
    directory, buckets = made
    for bucket in buckets:
        told = page(directory, bucket.id)
        (case, *_) = find_cases([directory / "corpus"])
        assert told.environment == {**THEN, "target": "cpu"} == read_case(case).environment
        assert "2.13.0+cpu" in page_markdown(told) and "2.15.0" not in page_markdown(told)


def test_the_page_of_a_bucket_is_of_one_case(made: tuple[Path, list[Bucket]]) -> None:
    directory, buckets = made
    for bucket in buckets:
        told, cases = page(directory, bucket.id), find_cases([directory / "corpus"])
        (one,) = [case for case in map(read_case, cases) if case.program == told.program]
        assert (told.failure, told.repro, told.row.runs) == (one.failure, one.repro, one.runs)


def test_a_failure_without_a_case_is_told_with_those_it_was_found_with(
    made: tuple[Path, list[Bucket]],
) -> None:
    directory, _ = made
    early, late = lonely(directory, "once in a while"), lonely(directory, "found later")
    assert page(directory, early).environment["torch"] == "2.13.0+cpu"
    assert page(directory, late).environment["torch"] == "2.15.0+cpu"
    card = page(directory, lonely(directory, "and on a card")).environment
    assert card["target"] == "virtual-sm90" and "H100" in card["card"]


def test_versions_that_change_twice_without_a_failure_leave_the_last(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for number, versions in enumerate([THEN, NOW, THEN, NOW]):
            store.begin(1, {}, versions)
            if number != 1:
                store.add_failure(Program(seed=number), raised("it broke"))
        found = [store.environment(row) for row in store.failures()]
    assert found == [THEN, THEN, NOW]


@pytest.mark.parametrize(
    "key, here",
    [
        ("torch", "2.15.0+cpu"),
        ("python", "3.12.1"),
        ("triton", "3.7.1"),
        ("cxx", "g++ 14"),
        ("flash_attn", "2.8.3"),
    ],
)
def test_another_toolchain_is_refused(tmp_path: Path, key: str, here: str) -> None:
    with Store(tmp_path) as store:
        store.begin(1, {}, THEN)
        with pytest.raises(CampaignError) as caught:
            check_toolchain({**THEN, key: here}, CONFIG, store, tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}: {key}: ") and "\n" not in said
    assert THEN.get(key, "none") in said and here in said and CONFIG.python in said


def test_another_kernel_or_machine_is_not(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        check_toolchain(NOW, CONFIG, store, tmp_path)
        store.begin(1, {}, THEN)
        check_toolchain({**THEN, "os": "b", "cpu": "other"}, CONFIG, store, tmp_path)


def test_a_launch_asks_before_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, Pool(THEN), shipped=False)

    class Ray(Pool):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(NOW)

    monkeypatch.setattr("attnfuzz.fuzz.pool.ray_pool.RayPool", Ray)
    with pytest.raises(CampaignError, match=r"torch: the campaign there ran with 2\.13\.0\+cpu"):
        launch(CONFIG, tmp_path)
    with Store(tmp_path, create=False) as store:
        begun = store.campaign()
        assert begun is not None and dict(begun.versions) == THEN


def text(told: Page) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(page_text(told))
    return out.getvalue()


def test_where_there_is_no_script_that_is_said(made: tuple[Path, list[Bucket]]) -> None:
    directory, _ = made
    told = page(directory, lonely(directory, "and on a card"))
    issue = page_markdown(told)
    assert "```python" not in issue and "```yaml\nseed: 2\n" in issue
    assert "not confirmed by fresh runs" in issue
    for shown in (issue, text(told)):
        assert "There is no script of it yet" in shown
        assert "`attnfuzz run program.yaml --target virtual-sm90`" in shown
        assert "`attnfuzz render program.yaml`" in shown


def test_where_it_is_known_the_case_is_named(
    tmp_path: Path, made: tuple[Path, list[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = made[0] / "corpus"
    monkeypatch.setattr("attnfuzz.fuzz.campaign.known_buckets.SHIPPED", corpus)
    monkeypatch.setattr("attnfuzz.fuzz.report.campaign_rows.SHIPPED", corpus)
    (bucket, *_) = run(tmp_path)
    told = page(tmp_path, bucket.id)
    assert told.row.where == str(next(corpus.glob(f"{bucket.id}-*")))
    for shown in (page_markdown(told), text(told).replace("\n", " ")):
        assert f"shipped: {bucket.id}" in shown and "it was known before" in shown
    assert page_json(told)["known_issue"] == f"shipped: {bucket.id}"


def test_the_thread_of_a_known_issue_is_told(made: tuple[Path, list[Bucket]]) -> None:
    directory, buckets = made
    link = "https://github.com/pytorch/pytorch/issues/139548"
    with Store(directory) as store:
        labelled = replace(buckets[0], known_issue="shipped: 2509ab44, pytorch-139548")
        store.save_bucket(labelled)
    told = page(directory, labelled.id)
    assert link in text(told) and link in page_markdown(told)
    assert page_json(told)["thread"] == link


def test_show_tells_the_case_through_the_command(
    attnfuzz: Run, made: tuple[Path, list[Bucket]]
) -> None:
    directory, buckets = made
    assert (directory / DATABASE).is_file()
    result = attnfuzz("show", buckets[1].id, "--dir", directory, "--json")
    assert json.loads(result.stdout)["environment"]["torch"] == "2.13.0+cpu"
