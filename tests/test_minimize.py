"""The search reaches 1-minimal programs, whatever the number of runs at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.fuzz.reduce.judges import fails_alike, fails_wherever
from attnfuzz.fuzz.reduce.minimize import Minimize
from attnfuzz.fuzz.reduce.search import Minimizer, at_layer
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.methods.specs import AllGather, ContextParallel, Heads
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import AllTrue, Causal
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Mesh,
    Program,
    Shape,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates, complexity
from tests.support.fake_pool import PASSED
from tests.support.fake_pool import wrong as off

Predicate = Callable[[Program], bool]


def failing(message: str = "boom", layer: Layer = Layer.INDUCTOR) -> Outcome:
    raised = Raised(type="RuntimeError", message=message)
    failure = Failure(
        kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=layer, raised=raised
    )
    return Outcome(status="failed", failure=failure)


BOOM = failing()
BUSY = Program(
    seed=12345,
    kernel=Flex(block_mask=BlockMaskSpec(block_size=(64, 32)), enable_gqa=True),
    shape=Shape(batch=3, q_heads=4, kv_heads=2, q_len=131, kv_len=200, head_dim=40),
    q=Input(dtype="bfloat16"),
    k=Input(dtype="bfloat16"),
    v=Input(dtype="bfloat16"),
    mask=Causal(offset=3),
    compile=Compile(dynamic=True, mode="max-autotune"),
    calls=(Call(batch=2, q_len=7, kv_len=9),),
)

PREDICATES: dict[str, Predicate] = {
    "always": lambda p: True,
    "long keys": lambda p: p.shape.kv_len > 40,
    "compiled": lambda p: p.compile is not None and p.compile.backend == "inductor",
    "grouped heads and bfloat16": lambda p: (
        p.shape.q_heads != p.shape.kv_heads and p.q.dtype == "bfloat16"
    ),
    "flex with a mask and calls": lambda p: p.kernel.kind == "flex" and bool(p.mask and p.calls),
}


def judge_boom(program: Program, outcome: Outcome) -> bool:
    return outcome == BOOM


def search_of(program: Program = BUSY, **options: Any) -> Minimizer:
    return Minimizer(program, BOOM, judge_boom, **options)


def drive(search: Minimizer, fails: Predicate, width: int, order: random.Random) -> None:
    """Runs `width` candidates at once, which come back in any order."""
    out: list[Program] = []
    while not search.finished:
        while len(out) < width and (program := search.next_candidate()) is not None:
            out.append(program)
        if not out:
            break
        program = out.pop(order.randrange(len(out)))
        search.report(program, BOOM if fails(program) else PASSED)
    assert search.finished


@pytest.mark.parametrize("name", PREDICATES)
def test_the_result_is_one_minimal_and_simpler(name: str) -> None:
    fails, search = PREDICATES[name], search_of()
    drive(search, fails, 1, random.Random(0))
    assert fails(search.best)
    assert search.minimal
    assert complexity(search.best) < complexity(BUSY)
    assert not [c for c in candidates(search.best) if fails(c)]


@pytest.mark.parametrize("name", PREDICATES)
@pytest.mark.parametrize("width", [2, 5])
def test_the_result_does_not_depend_on_how_many_run_at_once(name: str, width: int) -> None:
    alone, many = search_of(), search_of()
    drive(alone, PREDICATES[name], 1, random.Random(0))
    drive(many, PREDICATES[name], width, random.Random(width))
    assert many.best == alone.best


def test_no_program_runs_twice() -> None:
    search, seen = search_of(), set()
    while (program := search.next_candidate()) is not None:
        assert program_id(program) not in seen
        seen.add(program_id(program))
        search.report(program, BOOM if program.shape.kv_len > 40 else PASSED)
    assert len(seen) == search.evaluated


def test_every_accepted_step_is_strictly_simpler() -> None:
    search, best = search_of(), complexity(BUSY)
    while (program := search.next_candidate()) is not None:
        if search.report(program, BOOM if program.mask is not None else PASSED):
            assert complexity(search.best) < best
            best = complexity(search.best)
    assert search.steps > 0


def test_a_simplifier_that_offers_more_complex_programs_is_not_followed() -> None:
    search = Minimizer(Program(), BOOM, judge_boom, simplify=lambda program: [BUSY])
    assert search.next_candidate() is None
    assert search.finished
    assert search.best == Program()


def test_the_budget_keeps_the_best_so_far() -> None:
    search = search_of(max_candidates=3)
    drive(search, lambda p: True, 1, random.Random(0))
    assert search.evaluated <= 3
    assert not search.minimal
    assert complexity(search.best) < complexity(BUSY)


def test_stopping_keeps_the_best_and_ignores_what_comes_late() -> None:
    search = search_of()
    first = search.next_candidate()
    assert first is not None
    search.stop()
    assert search.finished
    assert not search.report(first, BOOM)
    assert search.best == BUSY


def test_a_later_success_waits_for_the_candidates_before_it() -> None:
    search = search_of()
    first, second = search.next_candidate(), search.next_candidate()
    assert first is not None and second is not None
    assert not search.report(second, BOOM)
    assert search.next_candidate() is None
    assert search.report(first, PASSED)
    assert search.best == second


def test_another_failure_is_not_accepted_but_reported() -> None:
    search, other = search_of(), failing("another thing")
    first = search.next_candidate()
    assert first is not None
    search.report(first, other)
    assert search.other_failures == [(first, other)]
    assert search.best == BUSY


def test_programs_that_another_bucket_explains_are_avoided() -> None:
    search = search_of(avoid=lambda p: p.compile is None)
    drive(search, lambda p: True, 1, random.Random(0))
    assert search.best.compile is not None


@pytest.mark.parametrize("width", [1, 4])
def test_what_is_one_step_from_a_known_program_ends_there(width: int) -> None:
    def long_or_in_small_blocks(program: Program) -> bool:
        spec = getattr(program.kernel, "block_mask", None)
        return spec is not None and program.shape.q_len >= spec.block_size[0]

    known = Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(16, 16))), mask=AllTrue())
    has = features(known)
    options: dict[str, Any] = {"avoid": lambda p: has <= features(p)}
    beside = search_of(**options)
    drive(beside, long_or_in_small_blocks, width, random.Random(1))
    assert beside.best != known and beside.minimal
    search = search_of(ends_at=lambda p: features(p) == has, **options)
    drive(search, long_or_in_small_blocks, width, random.Random(1))
    assert search.best == known and search.minimal
    passes = search_of(ends_at=lambda p: features(p) == has, **options)
    drive(passes, lambda p: p != known and long_or_in_small_blocks(p), width, random.Random(1))
    assert passes.best == beside.best


def test_a_failure_of_a_lower_layer_is_minimized_there_first() -> None:
    outcome = failing(layer=Layer.AOT_EAGER)
    search = Minimizer(BUSY, outcome, lambda p, o: o == outcome)
    first = search.next_candidate()
    assert first is not None and first.compile is not None
    assert first.compile == Compile(backend="aot_eager", dynamic=True)
    assert replace(first, compile=BUSY.compile) == BUSY


def test_at_layer_changes_nothing_where_nothing_is_lower() -> None:
    eager = Program(kernel=Sdpa(), compile=Compile(backend="eager"))
    assert at_layer(eager, Layer.DYNAMO) is None
    assert at_layer(eager, Layer.EAGER) == Program(kernel=Sdpa())
    assert at_layer(eager, None) is None
    assert at_layer(Program(), Layer.EAGER) is None


def test_fails_alike_compares_strong_keys() -> None:
    assert BOOM.failure is not None
    judge = fails_alike(signature(BOOM.failure, BUSY).strong)
    assert judge(Program(compile=Compile()), failing("boom"))
    assert not judge(BUSY, failing("another thing"))
    assert not judge(BUSY, PASSED)


def test_a_break_in_the_graph_is_minimized_as_one_though_its_exception_has_its_key() -> None:
    reason = "Call to `f()`\n  Explanation: Dynamo does not know how to trace f"
    unknown = Raised(type="torch._dynamo.exc.Unsupported", message=reason)
    error = Failure(
        kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=Layer.DYNAMO, raised=unknown
    )
    diff = Diff(output="attention", what="graph", expected="whole", actual="Call to `f()`")
    broken = Failure(
        kind=FailureKind.GRAPH_BREAK, phase=Phase.CHECK, layer=Layer.DYNAMO, diffs=(diff,),
        evidence={"graph breaks": f"{reason}\n\n  Developer debug context: f"},
    )  # fmt: skip
    key = signature(broken, BUSY).strong
    assert key == signature(error, BUSY).strong
    raising = Outcome(status="failed", failure=error)
    assert fails_alike(key)(BUSY, raising)
    assert not fails_alike(key, kind=FailureKind.GRAPH_BREAK)(BUSY, raising)
    breaking = Outcome(status="failed", failure=broken)
    assert fails_alike(key, kind=FailureKind.GRAPH_BREAK)(BUSY, breaking)


def test_wrong_numbers_at_another_layer_are_another_failure() -> None:
    def wrong(layer: Layer) -> Outcome:
        diff = Diff(output="out", what="value", expected="1", actual="2", error=1.0, budget=0.1)
        failure = Failure(
            kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=layer, diffs=(diff,)
        )
        return Outcome(status="failed", failure=failure)

    failure = wrong(Layer.INDUCTOR).failure
    assert failure is not None
    judge = fails_alike(signature(failure, BUSY).strong)
    assert judge(replace(BUSY, training=Training()), wrong(Layer.INDUCTOR))
    assert not judge(BUSY, wrong(Layer.EAGER))


def test_what_is_wrong_with_any_kernel_is_minimized_to_the_simplest() -> None:
    def wrong(layer: Layer) -> Outcome:
        diff = Diff(output="dq", what="value", expected="1", actual="2", error=1.0, budget=0.1)
        return Outcome(
            status="failed",
            failure=Failure(
                kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=layer, diffs=(diff,)
            ),
        )

    by_hand = replace(BUSY, kernel=Handwritten())
    failure = wrong(Layer.EAGER).failure
    assert failure is not None
    key = signature(failure, by_hand).strong
    simpler = replace(by_hand, kernel=Sdpa())
    assert not fails_alike(key)(simpler, wrong(Layer.EAGER))
    assert fails_alike(key, by_hand)(simpler, wrong(Layer.EAGER))
    assert not fails_alike(key, by_hand)(simpler, wrong(Layer.INDUCTOR))
    assert not fails_alike(key, by_hand)(simpler, BOOM)


def test_what_is_wrong_by_any_method_is_minimized_to_the_plainest() -> None:
    whole = Program(
        kernel=Sdpa(mask_form="is_causal"), mask=Causal(), training=Training(),
        shape=Shape(batch=2, q_heads=2, kv_heads=2, q_len=48, kv_len=48),
        mesh=Mesh(world_size=3, method=ContextParallel(rotate="alltoall", return_lse=True)),
    )  # fmt: skip
    ragged = replace(
        whole, kernel=Sdpa(), mask=None, shape=Shape(q_len=16, kv_len=16),
        mesh=Mesh(world_size=3, method=AllGather(by="collective"), lengths=(3, 8, 5)),
    )  # fmt: skip
    for program in (whole, ragged):
        assert not problems(program)
        alike = fails_wherever(program, off("out"))
        search = Minimizer(program, off("out"), alike)
        while (candidate := search.next_candidate()) is not None:
            mesh = candidate.mesh
            shared = mesh is not None and mesh.method is not None and mesh.degree >= 3
            search.report(candidate, off("out") if shared else PASSED)
        assert search.best.mesh == Mesh(world_size=3, method=Heads())
        assert search.best.shape == Shape(q_heads=3, kv_heads=3)


def test_what_needs_two_dimensions_of_a_mesh_is_minimized_to_those_of_the_batch() -> None:
    shape = Shape(q_heads=4, kv_heads=4, q_len=64, kv_len=64)
    program = Program(shape=shape, mesh=Mesh(world_size=8, tensor=2, method=AllGather()))
    search = Minimizer(program, off("out"), fails_wherever(program, off("out")))
    while (candidate := search.next_candidate()) is not None:
        mesh = candidate.mesh
        two = mesh is not None and mesh.data * mesh.tensor > 1 and mesh.degree > 1
        search.report(candidate, off("out") if two else PASSED)
    assert search.best.mesh == Mesh(world_size=4, data=2, method=Heads())
    assert search.best.shape == Shape(batch=2, q_heads=2, kv_heads=2)


def test_as_a_stage_one_failing_run_of_several_is_enough() -> None:
    stage = Minimize(search_of(), attempts=3)
    task = stage.next_task()
    assert isinstance(task, RunTask) and len(task.programs) == 3
    stage.report(task, [PASSED, BOOM, PASSED])
    assert stage.progress
    assert stage.search.best == task.programs[0]


@pytest.mark.parametrize("width", [1, 2, 5])
def test_as_a_stage_every_new_best_is_told(width: int) -> None:
    program, order = Program(kernel=Flex(scale=0.5), k=Input(dtype="bfloat16")), random.Random(0)
    for _ in range(10):
        stage, saved, out = Minimize(search_of(program)), program, list[RunTask]()
        while not stage.finished:
            task = stage.next_task() if len(out) < width else None
            if isinstance(task, RunTask):
                out.append(task)
            elif out:
                task = out.pop(order.randrange(len(out)))
                stage.report(task, [BOOM if task.programs[0].k.dtype == "bfloat16" else PASSED])
            if stage.progress:
                saved, stage.progress = stage.search.best, False
        assert saved == stage.search.best


def test_as_a_stage_all_runs_must_fail_where_memory_may_decide() -> None:
    stage = Minimize(search_of(), attempts=3, always=True)
    task = stage.next_task()
    assert isinstance(task, RunTask) and task.settings.until == "not failed"
    stage.report(task, [BOOM, PASSED])
    assert not stage.progress
    task = stage.next_task()
    assert isinstance(task, RunTask)
    stage.report(task, [BOOM, BOOM, BOOM])
    assert stage.progress
    assert stage.search.best == task.programs[0]


def test_wrong_gradients_of_a_transform_are_minimized_to_a_wrong_result() -> None:
    program = Program(transform="grad")
    found = off("dq")
    alike = fails_wherever(program, found)
    assert alike(program, found)
    assert alike(Program(), off("out"))
    assert not alike(Program(transform="vmap"), off("out"))
    assert not fails_wherever(Program(training=Training()), found)(Program(), off("out"))


def test_what_is_wrong_with_fused_attention_by_hand_is_minimized_to_sdpa() -> None:
    def changed(layer: Layer, features: tuple[str, ...] = ()) -> Outcome:
        diff = Diff(output="q", what="value", expected="unchanged", actual="changed")
        failure = Failure(
            kind=FailureKind.MUTATION, phase=Phase.CHECK, layer=layer, diffs=(diff,)
        )  # fmt: skip
        return Outcome(status="failed", failure=failure, features=features)

    program = Program(kernel=Handwritten(), compile=Compile())
    found = changed(Layer.INDUCTOR, ("inductor.fuse_attention",))
    alike = fails_wherever(program, found, FailureKind.MUTATION)
    assert alike(program, found)
    assert alike(Program(), changed(Layer.EAGER))
    assert not alike(Program(kernel=Handwritten()), changed(Layer.EAGER))
    assert not alike(Program(), BOOM)
    not_fused = fails_wherever(program, changed(Layer.INDUCTOR))
    assert not not_fused(Program(), changed(Layer.EAGER))
