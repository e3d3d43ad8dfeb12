"""What is known before a campaign begins: told as known, cheap, and hiding nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.corpus.bucket import Bucket, coarse, new_bucket
from attnfuzz.corpus.case import Case, Preload, find_cases, read_bucket, write_bucket, write_case
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow, State, Store
from attnfuzz.fuzz.campaign import known_buckets
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.known_buckets import cause_of, load_known
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, ShardTask, Task
from attnfuzz.fuzz.reduce.attribute import MAX_RUNS
from attnfuzz.fuzz.report import findings
from attnfuzz.fuzz.report import tables as report
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Failure, Layer, Outcome
from attnfuzz.generators.model.program import Program, Shape
from tests.support.fake_campaign import CONFIG, run
from tests.support.fake_pool import FakePool, raised, wrong


class Counting(FakePool):
    """Remembers what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Task] = []

    def answer(self, task: Task) -> Answer:
        self.asked.append(task)
        return super().answer(task)

    @property
    def programs(self) -> list[Program]:
        return [one for task in self.asked if isinstance(task, RunTask) for one in task.programs]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Bucket]]:
    """A corpus, and the buckets of the campaign that made it."""
    directory = tmp_path_factory.mktemp("first")
    buckets = run(directory, FakePool(), shipped=False)
    assert len(buckets) == 3 and not any(bucket.known_issue for bucket in buckets)
    return directory / "corpus", buckets


def judged_by_numbers(row: FailureRow) -> bool:
    """Whether its key has no stack: what it is of takes a run to tell."""
    assert row.outcome.failure is not None
    return signature(row.outcome.failure, row.program).needs_trigger


def ship(monkeypatch: pytest.MonkeyPatch, corpus: Path) -> None:
    monkeypatch.setattr(known_buckets, "SHIPPED", corpus)


def table(directory: Path) -> dict[str, Any]:
    with Store(directory, create=False) as store:
        assert not store.pending()
        totals, rows = findings.totals(store), findings.rows(store, directory)
        said = report.summary(totals, rows)
        return {"said": said, "rows": {row.id: row for row in rows}}


def test_what_is_shipped_is_known_and_costs_nothing(
    tmp_path: Path, first: tuple[Path, list[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, before = first
    ship(monkeypatch, corpus)
    pool = Counting()
    after = run(tmp_path, pool)
    assert {(b.id, b.known_issue) for b in after} == {(b.id, f"shipped: {b.id}") for b in before}
    assert {b.strong for b in after} == {b.strong for b in before}
    known = [p for p in pool.programs if p.shape.head_dim != 40 or p.mask is not None]
    with Store(tmp_path, create=False) as store:
        met = [row for row in store.failures() if row.state is State.DUPLICATE]
        by_stack = [row for row in met if not judged_by_numbers(row)]
        totals = store.totals()
    assert 0 < len(known) <= MAX_RUNS * (len(met) - len(by_stack))
    assert not any(program_id(p) in {row.program_id for row in by_stack} for p in known)
    assert sum(totals.attributed.values()) > 0 and not totals.attributed_wrong
    assert not (tmp_path / "corpus").exists()
    told = table(tmp_path)
    assert "buckets: 0 new, 3 known" in told["said"]
    assert {row.state for row in told["rows"].values()} == {"known"}
    assert {row.known_issue for row in told["rows"].values()} == {
        f"shipped: {b.id}" for b in before
    }


def test_what_is_checked_is_minimized_as_if_its_cause_were_not_known(
    tmp_path: Path, first: tuple[Path, list[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past nothing that the bucket explains: all programs on the way are such."""
    corpus, before = first
    ship(monkeypatch, corpus)
    run(tmp_path, FakePool(), counterfactuals_checked=1)
    with Store(tmp_path, create=False) as store:
        totals = store.totals()
        rows = [row for row in store.failures() if judged_by_numbers(row)]
    minimized = [(row, row.best) for row in rows if row.best is not None]
    assert totals.attributed_checked == sum(totals.attributed.values()) > 0
    assert not totals.attributed_wrong
    needed = {one.id: one.sorts for one in before if one.needs_trigger}
    assert minimized and all(row.evaluated and best != row.program for row, best in minimized)
    assert all(coarse(features(best)) >= needed[row.bucket or ""] for row, best in minimized)


def test_workers_count_what_is_known_once_it_was_met(
    tmp_path: Path, first: tuple[Path, list[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, before = first
    ship(monkeypatch, corpus)
    pool = Counting()
    run(tmp_path, pool, shards=12)
    shards = {t.shard.index: t.shard for t in pool.asked if isinstance(t, ShardTask)}
    assert shards[0].known_keys == frozenset()
    assert shards[11].known_keys == {bucket.strong for bucket in before}
    with Store(tmp_path, create=False) as store:
        assert store.totals().by_key.keys() == {row.strong for row in store.failures()}
        seen, times = store.occurrences(), store.totals().by_key
        for bucket in before:
            assert seen[bucket.id] == times[bucket.strong]
            if not bucket.needs_trigger and times[bucket.strong] > 6:
                assert len(store.failures(strong=bucket.strong)) < times[bucket.strong]


def test_nothing_is_known_where_the_configuration_says_so(
    tmp_path: Path, first: tuple[Path, list[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, first[0])
    after = run(tmp_path, FakePool(), shipped=False)
    assert [bucket.known_issue for bucket in after] == [None] * 3


def test_a_corpus_that_a_configuration_names_is_known_besides(
    tmp_path: Path, first: tuple[Path, list[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, tmp_path / "none")
    after = run(tmp_path, FakePool(), corpus=[first[0]])
    assert {b.known_issue for b in after} == {f"corpus: {b.id}" for b in first[1]}


def test_a_campaign_that_was_begun_without_it_is_labelled_when_it_goes_on(
    tmp_path: Path, first: tuple[Path, list[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, first[0])
    before = run(tmp_path, FakePool(), shipped=False)
    assert not any(bucket.known_issue for bucket in before)
    after = run(tmp_path, FakePool())
    assert {b.id: b.known_issue for b in after} == {b.id: f"shipped: {b.id}" for b in before}
    assert {b.id: b.tried for b in after} == {b.id: b.tried for b in before}
    for folder in (tmp_path / "corpus").iterdir():
        assert read_bucket(folder).known_issue


# One bucket of programs made here, as it would be shipped


def failure_of(outcome: Outcome) -> Failure:
    assert outcome.failure is not None
    return outcome.failure


MASKED = Program(kernel=Handwritten(), mask=Causal(), shape=Shape(q_len=16, kv_len=48))


def shipped(
    corpus: Path,
    program: Program = MASKED,
    failure: Failure = failure_of(wrong("out")),  # noqa: B008
    **changes: Any,
) -> Bucket:
    """Writes a bucket of one case, and gives it."""
    bucket = new_bucket(signature(failure, program), failure, features(program))
    of_case: dict[str, Any] = {"environment": {"target": "cpu"}}
    of_case |= {key: changes.pop(key) for key in ("environment", "preload") if key in changes}
    bucket = replace(bucket, **changes)
    case = Case(program=program, failure=failure, **of_case)
    write_bucket(corpus, bucket)
    write_case(corpus, bucket, case)
    return bucket


def test_a_key_that_many_share_hides_no_other_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same key, but the program that is shipped needs a mask, and here it fails without."""
    ship(monkeypatch, tmp_path / "shipped")
    there = shipped(tmp_path / "shipped")
    after = run(tmp_path / "campaign", FakePool())
    (new,) = [bucket for bucket in after if bucket.strong == there.strong]
    assert new.id != there.id and new.known_issue is None
    assert new.trigger < there.trigger, "what is shipped needs more than the new one"


def test_what_its_key_leaves_open_is_known_once_it_is_minimized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another length than that of the case that is shipped: only what is left in the end tells."""
    ship(monkeypatch, tmp_path / "shipped")
    program = Program(kernel=Handwritten(), shape=Shape(q_len=17, kv_len=33))
    there = shipped(tmp_path / "shipped", program)
    pool = Counting()
    after = run(tmp_path / "campaign", pool)
    (same,) = [bucket for bucket in after if bucket.strong == there.strong]
    assert same.known_issue == f"shipped: {there.id}"
    assert any(p.kernel.kind == "handwritten" for p in pool.programs)
    assert table(tmp_path / "campaign")["rows"][there.id].state == "known"
    assert len(list((tmp_path / "campaign" / "corpus").glob("*/bucket.yaml"))) == 2


def test_another_device_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, tmp_path)
    numbers = shipped(tmp_path)
    stack = shipped(tmp_path, failure=failure_of(raised("masks are broken")))
    assert numbers.needs_trigger and not stack.needs_trigger
    found = load_known(CONFIG)

    def ids(target: str) -> set[str]:
        return {bucket.id for bucket in found.explaining(found.buckets, target)}

    assert ids("cpu") == {numbers.id, stack.id}
    assert ids("virtual-sm90") == ids("interpreted-sm90") == ids("cuda") == {stack.id}


def test_devices_of_one_sort_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, tmp_path)
    numbers = shipped(tmp_path, environment={"target": "virtual-sm86"})
    found = load_known(CONFIG)
    for target, there in {"virtual-sm90": True, "cuda": True, "cpu": False, "npu": False}.items():
        assert (numbers.id in {b.id for b in found.explaining(found.buckets, target)}) is there


def test_programs_are_drawn_clear_of_what_dynamo_does_for_any_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, tmp_path)
    numbers = shipped(tmp_path)
    inductors = failure_of(raised("masks are broken"))
    generated = shipped(tmp_path, failure=inductors)
    traced = shipped(tmp_path, failure=replace(inductors, layer=Layer.DYNAMO))
    known = load_known(CONFIG)

    def ids(target: str) -> set[str]:
        return {bucket.id for bucket in known.steered_clear_of(target)}

    assert ids("cpu") == {numbers.id, generated.id, traced.id}
    assert ids("virtual-sm90") == ids("npu") == {traced.id}


def test_keys_and_triggers_are_those_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, tmp_path)
    stale: dict[str, Any] = {"strong": "of-older-rules", "needs_trigger": False}
    stale["trigger"] = frozenset({"gone"})
    there = shipped(tmp_path, id="0123abcd", known_issue="pytorch-1", **stale)
    (bucket,) = load_known(CONFIG).buckets
    today = signature(failure_of(wrong("out")), MASKED)
    assert (bucket.strong, bucket.needs_trigger) == (today.strong, True)
    assert bucket.trigger == features(MASKED) and bucket.sorts == coarse(features(MASKED))
    assert bucket.known_issue == f"shipped: {there.id}, pytorch-1"


def test_what_was_learned_of_a_trigger_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, tmp_path)
    less = frozenset({"kernel.handwritten"})
    shipped(tmp_path, trigger=less, sorts=less)
    (bucket,) = load_known(CONFIG).buckets
    assert bucket.trigger == bucket.sorts == less


def test_cases_of_one_bucket_may_have_several_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, tmp_path)
    there = shipped(tmp_path, failure=failure_of(raised("masks are broken")))
    other = failure_of(raised("masks are broken in another way"))
    write_case(tmp_path, there, Case(program=replace(MASKED, seed=1), failure=other))
    found = load_known(CONFIG).buckets
    assert {bucket.strong for bucket in found} == {
        there.strong, signature(other, MASKED).strong
    }  # fmt: skip
    assert len({bucket.id for bucket in found}) == 2
    assert {bucket.known_issue for bucket in found} == {f"shipped: {there.id}"}


def test_a_planted_case_is_known_to_those_who_plant_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, tmp_path / "shipped")
    fault, other = tmp_path / "fault.py", tmp_path / "other.py"
    fault.write_text("import torch\n")
    other.write_text("import math\n")
    there = shipped(tmp_path / "shipped", preload=(Preload.of(fault),))
    for files, ids in {(): [], (other,): [], (other, fault): [there.id]}.items():
        config = CONFIG.model_copy(update={"preload": list(files)})
        assert [bucket.id for bucket in load_known(config).buckets] == ids


def test_what_is_shipped_is_known_by_what_its_cases_say() -> None:
    found = load_known(CONFIG)
    keys = {bucket.strong for bucket in found.buckets}
    plain = {"compile", "compile.inductor", "compile.aot_eager", "compile.fullgraph.false"}
    for folder in find_cases([known_buckets.SHIPPED]):
        case = known_buckets.read_case(folder)
        if not case.preload:
            assert signature(case.failure, case.program).strong in keys, folder
    for bucket in found.buckets:
        if bucket.needs_trigger:  # else it would hide whatever has a kernel and a compiler
            telling = bucket.trigger - plain - {f"kernel.{k}" for k in ("flex", "handwritten")}
            assert telling, f"{bucket.id}: its trigger explains everything"


def test_each_shipped_case_is_known_as_itself(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, load_known(CONFIG))
    for folder in find_cases([known_buckets.SHIPPED]):
        case = known_buckets.read_case(folder)
        if not case.preload:
            target = case.environment.get("target", "cpu")
            bucket = index.assign(case.failure, case.program, target)
            assert bucket is not None and bucket.known_issue is not None, folder
            assert bucket.known_issue.startswith(f"shipped: {read_bucket(folder.parent).id}")


def test_each_tensor_that_is_laid_out_is_a_bucket_of_its_own_label() -> None:
    """What fails so for q, for k and for v does not fail with any layout."""
    shipped = load_known(CampaignConfig()).buckets
    known = [one for one in shipped if one.known_issue == "shipped: cdf7315f"]
    assert [one.id for one in known if "layout.q.pad" in one.trigger] == ["cdf7315f"]
    assert len({one.id for one in known}) == len(known) == 6
    assert {cause_of(one) for one in known} == {"cdf7315f"}
    laid = [{name for name in one.trigger if name.startswith("layout.")} for one in known]
    ways = [[f"layout.{x}.expand"] for x in "kqv"]
    ways += [[f"layout.{x}.order", f"layout.{x}.pad"] for x in "kqv"]
    assert sorted(map(sorted, laid)) == sorted(ways)
