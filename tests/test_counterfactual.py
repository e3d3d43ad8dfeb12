"""Attribution by counterfactual, and drawing clear of what is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from attnfuzz.actors.cost import CostModel
from attnfuzz.actors.shard import Shard
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor
from attnfuzz.corpus.bucket import Bucket, coarse, merge_related, new_bucket
from attnfuzz.corpus.counterfactual import counterfactuals, holds, steered
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.known_buckets import Known, load_known
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.fuzz.reduce.attribute import MAX_RUNS, Attribute
from attnfuzz.generators.kernels.attention_gym.spec import AttentionGym
from attnfuzz.generators.kernels.diffusers.spec import Diffusers
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Torchtitan, TransformerLayer
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Frame, Outcome
from attnfuzz.generators.model.program import Compile, Input, Layout, Mesh, Program, Shape, Surround
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.complexity import complexity
from attnfuzz.generators.strategies.shards import generate, shard_programs
from attnfuzz.generators.strategies.swarm import PROFILES
from tests.support.fake_pool import PASSED, raised, wrong

NORM = Surround(qk_norm=True)
TRANSPOSED = Input(layout=Layout(order=(0, 1, 3, 2)))
MINIMAL = Program(kernel=Flex(), q=TRANSPOSED, surround=NORM, compile=Compile())
FOUND = replace(MINIMAL, mask=Causal(), shape=Shape(batch=2, q_heads=2, kv_heads=2), draws=2)
FOUND = replace(FOUND, kernel=Flex(block_mask=BlockMaskSpec()))


def bucket_of(program: Program, outcome: Outcome) -> Bucket:
    assert outcome.failure is not None
    failure = outcome.failure
    return new_bucket(signature(failure, program), failure, features(program))


def failure_of(outcome: Outcome) -> Failure:
    assert outcome.failure is not None
    return outcome.failure


KNOWN = bucket_of(MINIMAL, wrong("out"))
ON_CPU = [one for one in TARGETS["cpu"].profiles(dict.fromkeys(PROFILES, 1.0)) if one != "function"]


def test_each_lacks_one_thing_that_the_bucket_needs_and_little_else() -> None:
    found = counterfactuals(KNOWN, FOUND)
    assert len(found) == 2
    for program in found:
        gone = features(FOUND) - features(program)
        lost = coarse(features(FOUND)) - coarse(features(program))
        assert lost in ({"layout"}, {"surround.qk_norm"}), gone
        assert program.compile == FOUND.compile and program.mask == FOUND.mask
        assert not problems(program) and complexity(program) < complexity(FOUND)


def test_what_is_read_beside_a_tensor_may_be_known_as_wrong_numbers(tmp_path: Path) -> None:
    padded = Layout(order=(0, 1, 3, 2), pad=(0, 0, 1, 0), unread="nan")
    program = replace(FOUND, q=Input(), v=Input(layout=padded))
    dead = Diff(output="out", what="value", expected="1.0", actual="nan")
    failure = replace(failure_of(wrong("out")), kind=FailureKind.NONFINITE, diffs=(dead,))
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, Known((KNOWN,), {KNOWN.id: frozenset({"cpu"})}))
        assert index.suspects(failure, replace(program, q=program.v), "cpu") == [KNOWN]
        assert index.suspects(failure, program, "cpu") == [], "another tensor's layout"
        index.known, index.buckets = Known(), [KNOWN]
        assert index.suspects(failure, program, "cpu") == [KNOWN], "of the campaign's own"
        elsewhere = replace(program, v=Input(layout=replace(padded, unread="values")))
        assert index.suspects(failure, elsewhere, "cpu") == []


def test_memory_laid_out_otherwise_is_no_suspect(tmp_path: Path) -> None:
    expanded = replace(MINIMAL, q=Input(layout=Layout(order=(0, 2, 1, 3), expand=(0,))))
    known = bucket_of(expanded, wrong("out"))
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, Known((known,), {known.id: frozenset({"cpu"})}))
        assert known.sorts <= coarse(features(FOUND))
        assert index.suspects(failure_of(wrong("out")), FOUND, "cpu") == []
        other = replace(FOUND, q=Input(), k=expanded.q)
        assert index.suspects(failure_of(wrong("out")), other, "cpu") == []
        same = replace(FOUND, q=expanded.q)
        assert index.suspects(failure_of(wrong("out")), same, "cpu") == [known]


def test_what_a_system_does_wrong_may_be_known_of_the_kernel_underneath(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, Known((KNOWN,), {KNOWN.id: frozenset({"cpu"})}))
        for kernel in (AttentionGym(), Diffusers(backend="flex")):
            program = replace(FOUND, kernel=kernel)
            assert index.suspects(failure_of(wrong("out")), program, "cpu") == [KNOWN]
            without = counterfactuals(KNOWN, program)
            assert without and all(features(one) != features(program) for one in without)
        native = replace(FOUND, kernel=Diffusers())
        assert index.suspects(failure_of(wrong("out")), native, "cpu") == []


def test_what_a_transformer_does_wrong_may_be_known_of_its_decoder(tmp_path: Path) -> None:
    decoder = TransformerLayer(layer="decoder", memory_mask=True, memory_padding=True)
    known = bucket_of(Program(kernel=decoder), wrong("out"))
    stacks = replace(decoder, layer="transformer", num_layers=1, final_norm=True)
    program = Program(kernel=stacks)
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, Known((known,), {known.id: frozenset({"cpu"})}))
        assert index.suspects(failure_of(wrong("out")), program, "cpu") == [known]
        assert len(counterfactuals(known, program)) == 2
        other = Program(kernel=replace(stacks, memory_mask=False))
        assert index.suspects(failure_of(wrong("out")), other, "cpu") == []


def test_another_activation_and_number_of_layers_may_be_of_the_same_cause(tmp_path: Path) -> None:
    decoder = TransformerLayer(
        layer="decoder", num_layers=1, activation="gelu", activation_module=True
    )
    known = bucket_of(Program(kernel=decoder), wrong("out"))
    other = Program(kernel=replace(decoder, num_layers=2, activation="silu"))
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, Known((known,), {known.id: frozenset({"cpu"})}))
        failure = failure_of(wrong("out"))
        assert index.suspects(failure, other, "cpu") == [known]
        without = [coarse(features(program)) for program in counterfactuals(known, other)]
        assert without and all(len(known.sorts - has) == 1 for has in without)
        named = Program(kernel=replace(decoder, activation="silu", activation_module=False))
        assert index.suspects(failure, named, "cpu") == []
    found = signature(failure, other)
    assert merge_related(found, failure, features(other), [known]) == known


def test_numbers_that_are_wrong_otherwise_may_be_of_a_bucket_whose_trigger_they_have(
    tmp_path: Path,
) -> None:
    dead = Diff(output="out", what="value", expected="1.0", actual="nan")
    failure = replace(failure_of(wrong("out")), kind=FailureKind.NONFINITE, diffs=(dead,))
    assert signature(failure, FOUND).strong != KNOWN.strong
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, Known((KNOWN,), {KNOWN.id: frozenset({"cpu"})}))
        assert index.suspects(failure, FOUND, "cpu") == [KNOWN]
        less = replace(FOUND, surround=Surround())
        assert index.suspects(failure, less, "cpu") == []
        assert index.suspects(failure_of(wrong("out")), FOUND, "cpu") == [KNOWN]
        assert index.suspects(failure_of(raised("no")), FOUND, "cpu") == []


@pytest.mark.parametrize(("what", "explains"), [("stride", False), ("shape", True)])
def test_a_layout_explains_no_numbers(tmp_path: Path, what: str, explains: bool) -> None:
    other = Diff(output="out", what=what, expected="(16, 1)", actual="(1, 16)")
    kind = FailureKind.METADATA_MISMATCH
    failure = replace(failure_of(wrong("out")), kind=kind, diffs=(other,))
    known = bucket_of(MINIMAL, Outcome(status="failed", failure=failure))
    with Store(tmp_path) as store:
        index = BucketIndex(store, tmp_path, Known((known,), {known.id: frozenset({"cpu"})}))
        assert index.suspects(failure, FOUND, "cpu") == [known]
        assert bool(index.suspects(failure_of(wrong("out")), FOUND, "cpu")) is explains


def test_what_all_failures_need_tells_nothing() -> None:
    plain = bucket_of(Program(kernel=Flex(), compile=Compile()), wrong("out"))
    assert counterfactuals(plain, FOUND) == []


def test_of_what_is_shipped_nothing_is_left_where_programs_are_steered() -> None:
    known = load_known(CampaignConfig()).buckets
    met = 0
    for program in generate(3, 40):
        clear, of = steered(program, known)
        met += bool(of)
        assert not problems(clear)
        assert (clear == program) or of
        for bucket in known:
            if holds(bucket, features(clear)):
                assert not counterfactuals(bucket, clear, 1), bucket.id
    assert met > 0


@pytest.mark.parametrize("profile", ON_CPU)
def test_what_is_shipped_changes_few_programs_of_a_profile(profile: str) -> None:
    """A trigger that most programs have is of no use: what they are about would be taken away."""
    known = load_known(CampaignConfig()).steered_clear_of("cpu")
    shards = (shard_programs(5, index, 6, {profile: 1.0}) for index in range(15))
    drawn = [features(program) for shard in shards for program in shard]
    for bucket in known:
        assert sum(holds(bucket, has) for has in drawn) <= len(drawn) / 4, bucket.id


def test_a_system_keeps_the_kernel_underneath_where_something_else_can_go() -> None:
    titan = Torchtitan(module="flex", context_parallel="plain")
    mesh = Mesh(world_size=2, ranks="processes")
    shared = Program(kernel=titan, shape=Shape(q_len=256, kv_len=256), mesh=mesh, compile=Compile())
    assert not problems(shared)
    assert {one.mesh for one in counterfactuals(bucket_of(shared, wrong("out")), shared)} == {None}
    clear, _ = steered(shared, [bucket_of(shared, wrong("out"))])
    assert clear == replace(shared, kernel=Torchtitan(module="flex"), mesh=None)
    alone = replace(shared, kernel=Torchtitan(module="flex"), mesh=None, shape=Shape())
    known = bucket_of(alone, wrong("out"))
    assert not counterfactuals(known, alone)
    clear, _ = steered(alone, [known])
    assert clear == replace(alone, kernel=Torchtitan())


def attribute(
    judge: Callable[[Program], Outcome], suspects: Sequence[Bucket] = (KNOWN,)
) -> tuple[Attribute, int]:
    """Attribution of `FOUND`, where programs do what `judge` says; and the runs that it took."""
    stage = Attribute(
        [(one, counterfactuals(one, FOUND)) for one in suspects],
        lambda program, outcome: outcome == wrong("out"),
        "cpu",
    )
    runs = 0
    while (task := stage.next_task()) is not None:
        assert isinstance(task, RunTask) and stage.next_task() is None
        runs += 1
        stage.report(task, [judge(task.programs[0])])
    assert stage.finished
    return stage, runs


def by_cause(program: Program) -> Outcome:
    return wrong("out") if holds(KNOWN, features(program)) else PASSED


def test_what_passes_without_is_of_the_bucket() -> None:
    stage, runs = attribute(by_cause)
    assert stage.bucket == KNOWN and stage.simpler is None and runs == 2


def test_what_fails_without_is_something_else_and_simpler() -> None:
    stage, runs = attribute(lambda program: wrong("out"))
    assert stage.bucket is None and runs == 1
    assert stage.simpler is not None
    program, outcome = stage.simpler
    assert outcome == wrong("out") and not holds(KNOWN, features(program))


def test_what_fails_otherwise_without_is_of_the_bucket_and_a_finding_besides() -> None:
    stage, _ = attribute(lambda program: raised("something else"))
    assert stage.bucket == KNOWN
    assert [outcome for _, outcome in stage.other_failures] == [raised("something else")] * 2


@pytest.mark.parametrize("status", ["rejected", "lost", "not_run"])
def test_what_was_not_judged_tells_nothing(status: str) -> None:
    stage, _ = attribute(lambda program: Outcome(status=status))  # type: ignore[arg-type]
    assert stage.bucket is None and stage.simpler is None


def test_few_runs_are_taken_however_many_suspects_there_are() -> None:
    others = [replace(KNOWN, id=f"{n:08x}") for n in range(9)]
    stage, runs = attribute(lambda program: wrong("out"), others)
    assert stage.bucket is None and runs == MAX_RUNS


class Scripted(Executor):
    """An executor whose programs do as they are told."""

    def __init__(self, judge: Callable[[Program], Outcome]) -> None:
        self.ran: list[Program] = []
        self._judge = judge
        self._costs, self._shown = CostModel.of_table(), set[str]()

    def _sandbox(self, target: str) -> None:  # type: ignore[override]
        return None

    def harness_cpu_s(self) -> float:
        return 0.0

    def _run(self, program: Program, settings: object, *, native: bool = True) -> Outcome:
        self.ran.append(program)
        return self._judge(program)


SHARD = Shard(campaign_seed=1, index=0, size=30, profiles=(("inductor-handwritten", 1.0),))


def test_a_shard_is_drawn_clear_of_what_is_known() -> None:
    several = Shape(q_heads=2, kv_heads=2)
    known = bucket_of(Program(kernel=Handwritten(), shape=several), raised("two heads"))
    plain, clear = Scripted(lambda p: PASSED), Scripted(lambda p: PASSED)
    plain.run_shard(SHARD)
    report = clear.run_shard(replace(SHARD, clear_of=(known,)))
    assert any(holds(known, features(one)) for one in plain.ran)
    assert not any(holds(known, features(one)) for one in clear.ran)
    changed = [new for old, new in zip(plain.ran, clear.ran, strict=True) if old != new]
    assert 0 < len(changed) == report.steered[known.id] < len(clear.ran)


def masks_are_broken() -> Outcome:
    """A failure with a stack: its key is of one cause."""
    outcome = raised("masks are broken")
    assert outcome.failure is not None and outcome.failure.raised is not None
    frame = Frame(file="torch/_inductor/lowering.py", function="mask")
    exception = replace(outcome.failure.raised, frames=(frame,))
    return replace(outcome, failure=replace(outcome.failure, raised=exception))


def test_what_comes_after_a_known_failure_is_tried_without_its_cause() -> None:
    def judge(program: Program) -> Outcome:
        return masks_are_broken() if program.mask is not None else PASSED

    known = bucket_of(Program(kernel=Handwritten(), mask=Causal()), masks_are_broken())
    assert not known.needs_trigger
    executor = Scripted(judge)
    report = executor.run_shard(replace(SHARD, known=(known,)))
    failed = report.counts["failed"]
    assert failed > 0
    assert report.executed == len(executor.ran) == SHARD.size + failed
    assert report.behind == failed
    for before, after in pairwise(executor.ran):
        if before.mask is not None:
            assert after.mask is None
