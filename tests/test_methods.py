"""Methods by which ranks share one attention: what is valid, how it is written and simplified, and
that any number of ranks gives what one does."""

from __future__ import annotations

import ast
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.child.simulation.turns import Stuck, Turns
from attnfuzz.actors.sandbox.job import Job, launched_ranks_of, ranks_of, simulated_ranks_of
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.methods.registry import KINDS, plugin_for
from attnfuzz.generators.methods.sharding import chunks
from attnfuzz.generators.methods.specs import (
    AllGather,
    ContextParallel,
    FlexContextParallel,
    Heads,
    Ring,
    Ulysses,
)  # fmt: skip
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shapes import cost
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import MAX_COST

GOLDEN = Path(__file__).parent / "golden" / "methods"
DOCUMENTS = masks.Documents(causal=True)
PER_HEAD = masks.And(left=masks.Causal(), right=masks.Documents(per_batch=True))


def program(method: Any, degree: int = 4, **changes: Any) -> Program:
    """An ordinary program of that method: a mask, gradients, two heads for each rank."""
    by_heads = isinstance(method, Heads | Ulysses)
    heads = 2 * degree if by_heads else 2
    kernel: Any = Handwritten()
    mask: Any = DOCUMENTS
    training: Training | None = Training()
    length = 4 * degree
    if isinstance(method, Ring):
        kernel = Sdpa(backend="math")
    if isinstance(method, ContextParallel):
        kernel, mask = Sdpa(mask_form="is_causal"), masks.Causal()
    if isinstance(method, FlexContextParallel):
        kernel, length, training = Flex(block_mask=BlockMaskSpec()), 256 * degree, None
    whole = Program(
        kernel=kernel, mask=mask, training=training,
        shape=Shape(q_heads=heads, kv_heads=heads, q_len=length, kv_len=length, head_dim=8),
        mesh=Mesh(world_size=degree, method=method),
    )  # fmt: skip
    return replace(whole, **changes)


METHODS = {
    "heads": Heads(),
    "all-gather": AllGather(),
    "all-gather-collective": AllGather(by="collective"),
    "ulysses": Ulysses(),
    "ulysses-collective": Ulysses(by="collective"),
    "ring": Ring(),
    "ring-zigzag": Ring(order="zigzag"),
    "ring-striped": Ring(order="striped"),
    "ring-lse": Ring(order="zigzag", return_lse=True),
    "ring-of-ulysses": Ring(order="zigzag", ulysses=2),
    "context-parallel": ContextParallel(),
    "context-parallel-balanced": ContextParallel(balance="head_tail", rotate="alltoall"),
    "context-parallel-efficient": ContextParallel(balance="head_tail", operator="efficient"),
    "context-parallel-lse": ContextParallel(balance="head_tail", return_lse=True),
    "flex-context-parallel": FlexContextParallel(),
    "flex-context-parallel-ptrr": FlexContextParallel(balance="ptrr"),
    "flex-context-parallel-documents": FlexContextParallel(balance="per_document"),
}
BY_MANAGER = ContextParallel(balance="head_tail", rotate="alltoall", by="manager")
UNEVEN = Shape(batch=2, q_heads=2, kv_heads=2, q_len=7, kv_len=5, head_dim=8)
PROGRAMS = {name: program(method) for name, method in METHODS.items()} | {
    "all-gather-uneven": program(AllGather(), shape=UNEVEN),
    "ring-uneven": program(Ring(), shape=UNEVEN),
    "ring-uneven-lse": program(Ring(return_lse=True), shape=UNEVEN),
    "ring-of-ulysses-lse": program(Ring(ulysses=2, return_lse=True), training=None),
    "context-parallel-local-lse": program(
        ContextParallel(return_lse=True, rotate="alltoall"), training=None
    ),
    "context-parallel-manager": program(
        BY_MANAGER, training=None, mesh=Mesh(world_size=2, ranks="processes", method=BY_MANAGER)
    ),
    "context-parallel-manager-compiled": program(
        BY_MANAGER,
        training=None,
        compile=Compile(backend="aot_eager", via="local"),
        mesh=Mesh(world_size=2, ranks="processes", method=replace(BY_MANAGER, balance="none")),
    ),
    "flex-context-parallel-lse": program(
        FlexContextParallel(balance="head_tail"),
        1,
        kernel=Flex(block_mask=BlockMaskSpec(), return_lse=True),
    ),
    "ring-lengths": program(
        Ring(),
        shape=replace(UNEVEN, q_len=9, kv_len=9),
        mesh=Mesh(world_size=4, method=Ring(), lengths=(3, 0, 5, 1)),
    ),
    "all-gather-lengths": program(
        AllGather(by="collective"),
        shape=replace(UNEVEN, q_len=9, kv_len=9),
        mesh=Mesh(world_size=3, method=AllGather(by="collective"), lengths=(0, 2, 7)),
    ),
    "ring-under-fsdp": program(
        Ring(),
        2,
        surround=Surround(projections=True, checkpoint="full"),
        mesh=Mesh(world_size=2, method=Ring(), module="fsdp"),
    ),
    "all-gather-under-fsdp": program(
        AllGather(),
        2,
        surround=Surround(projections=True),
        mesh=Mesh(world_size=4, data=2, method=AllGather(), module="fsdp"),
        shape=Shape(batch=2, q_heads=2, kv_heads=2, q_len=8, kv_len=8, head_dim=8),
    ),
    "context-parallel-under-fsdp": program(
        ContextParallel(),
        2,
        surround=Surround(projections=True),
        mesh=Mesh(world_size=2, method=ContextParallel(), module="fsdp"),
    ),
    "ulysses-under-ddp": program(
        Ulysses(),
        2,
        surround=Surround(projections=True, checkpoint="full"),
        mesh=Mesh(world_size=2, method=Ulysses(), module="ddp"),
    ),
    "ring-half-precision": program(
        Ring(), q=Input(dtype="bfloat16"), k=Input(dtype="bfloat16"), v=Input(dtype="bfloat16")
    ),
    "context-parallel-checkpointed": program(
        ContextParallel(balance="head_tail"),
        surround=Surround(checkpoint="full"),
    ),
    "ulysses-of-two-dimensions": program(
        Ulysses(),
        compile=Compile(backend="aot_eager"),
        mask=PER_HEAD,
        shape=Shape(batch=4, q_heads=4, kv_heads=4, q_len=8, kv_len=8, head_dim=8),
        kernel=Sdpa(broadcast=("h",)),
        mesh=Mesh(world_size=8, data=2, tensor=2, method=Ulysses()),
    ),
    "context-parallel-local": program(
        ContextParallel(), training=None, compile=Compile(backend="aot_eager", via="local")
    ),
}

LESS_ORDINARY = [
    name
    for name in PROGRAMS
    if name not in METHODS and name.startswith(("all-gather", "ring", "context-parallel"))
]
LESS_ORDINARY.remove("context-parallel-local")  # case b0888010
LESS_ORDINARY.remove("context-parallel-manager-compiled")  # seconds
LESS_ORDINARY.append("ulysses-under-ddp")


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str) -> None:
    assert problems(PROGRAMS[name]) == []
    text, file = source(PROGRAMS[name]), GOLDEN / f"{name}.py"
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_there_is_a_program_of_every_method() -> None:
    assert {p.mesh.method.kind for p in PROGRAMS.values() if p.mesh and p.mesh.method} == {*KINDS}


def test_the_text_is_that_of_torchrun_whatever_the_ranks_are() -> None:
    simulated = program(Ring())
    apart = program(Ring(), mesh=Mesh(world_size=4, ranks="processes", method=Ring()))
    assert source(simulated) == source(apart)
    assert [f(simulated) for f in (ranks_of, simulated_ranks_of, launched_ranks_of)] == [1, 4, 4]
    assert [f(apart) for f in (ranks_of, simulated_ranks_of, launched_ranks_of)] == [4, 0, 4]


def test_programs_round_trip() -> None:
    for each in PROGRAMS.values():
        assert load_program(dump_program(each)) == each


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("mesh.data", Program(mesh=Mesh(world_size=2, data=2))),
        ("compile.via", Program(compile=Compile(via="local"))),
        ("compile.via", program(Ring(), compile=Compile())),
        ("mesh.q", program(Heads(), mesh=Mesh(world_size=4, q="length", method=Heads()))),
        ("mesh.world_size", program(Heads(), mesh=Mesh(world_size=3, data=2, method=Heads()))),
        ("mesh.ranks", program(Ring(), 1, mesh=Mesh(ranks="processes", method=Ring()))),
        ("shape.q_heads", program(Heads(), shape=Shape(q_heads=2, kv_heads=2))),
        ("shape.q_len", program(Ulysses(), shape=replace(UNEVEN, q_heads=4, kv_heads=4))),
        ("shape.q_len", program(Ring(order="zigzag"), shape=replace(UNEVEN, kv_len=7))),
        ("shape.kv_len", program(AllGather(by="collective"), shape=UNEVEN)),
        ("kernel", program(AllGather(), kernel=Handwritten(product="bmm"))),
        ("kernel", program(AllGather(), kernel=Sdpa(mask_form="is_causal"), mask=masks.Causal())),
        ("kernel", program(Ring(), kernel=Sdpa())),
        ("mask", program(ContextParallel(), mask=masks.Causal(offset=1))),
        ("training", program(FlexContextParallel(), training=Training())),
        ("mesh.ranks", program(BY_MANAGER, training=None)),
        (
            "mesh.lengths",
            program(Ring(), 2, mesh=Mesh(world_size=2, method=Ring(), lengths=(4, 4))),
        ),
        ("mesh.lengths", program(Heads(), mesh=Mesh(world_size=4, lengths=(4,), method=Heads()))),
        ("shape.q_len", program(Ring(), mesh=Mesh(world_size=4, method=Ring(), lengths=(9,) * 4))),
        ("mesh.module", program(Ring(), mesh=Mesh(world_size=4, module="fsdp"))),
        ("mesh.method", program(Heads(), mesh=Mesh(world_size=4, method=Heads(), module="fsdp"))),
        ("surround", program(Ring(), mesh=Mesh(world_size=4, method=Ring(), module="fsdp"))),
        ("training", program(Ring(), training=None, mesh=Mesh(method=Ring(), module="ddp"))),
        ("training.double", program(Heads(), training=Training(double=True))),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_named(key: str, wrong: Program) -> None:
    assert key in {problem.key for problem in problems(wrong)}


def test_features_say_the_method_and_whether_two_ranks_would_do() -> None:
    found = features(PROGRAMS["context-parallel-balanced"])
    named = {"method.context_parallel", "method.context_parallel.balance.head_tail", "mesh"}
    assert named | {"method.context_parallel.rotate.alltoall", "mesh.degree.gt2"} <= found
    assert "mesh.degree.gt2" not in features(program(Ring(), 2))
    assert "mesh.uneven" in features(PROGRAMS["ring-uneven"])


def reduced(start: Program, fails: Any) -> Program:
    """Where minimization ends with that predicate in place of a failure."""
    best = start
    while (simpler := next((one for one in candidates(best) if fails(one)), None)) is not None:
        best = simpler
    return best


def test_lengths_go_down_to_those_that_fail() -> None:
    def empty_between(p: Program) -> bool:
        lengths = p.mesh.lengths if p.mesh is not None else ()
        return any(not length for length in lengths[1:-1]) and min(lengths[0], lengths[-1]) > 0

    best = reduced(PROGRAMS["ring-lengths"], empty_between)
    assert best.mesh == Mesh(world_size=3, method=Ring(), lengths=(1, 0, 1))
    assert (best.shape.q_len, best.shape.kv_len, best.training) == (2, 2, None)


def test_the_degree_goes_down_to_the_smallest_that_fails() -> None:
    start = program(
        ContextParallel(balance="head_tail", rotate="alltoall"), 16,
        mesh=Mesh(world_size=64, data=2, tensor=2, ranks="processes",
                  method=ContextParallel(balance="head_tail", rotate="alltoall")),
        shape=Shape(batch=2, q_heads=2, kv_heads=2, q_len=64, kv_len=64),
    )  # fmt: skip
    assert problems(start) == []

    def fails(p: Program) -> bool:
        mesh = p.mesh
        return mesh is not None and isinstance(mesh.method, ContextParallel) and mesh.degree >= 3

    best = reduced(start, fails)
    assert best.mesh == Mesh(world_size=3, method=ContextParallel())
    assert best.training is None and best.mask is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_simpler_program_is_one(name: str) -> None:
    simpler = list(candidates(PROGRAMS[name]))
    assert simpler
    assert [problem for one in simpler for problem in problems(one)] == []


FORWARD, BACKWARD = 40, 80
"""How many lines the script of the simplest failing program of any method has at most."""


@pytest.mark.parametrize("trains", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", KINDS)
def test_scripts_are_short(kind: str, trains: bool) -> None:
    def fails(p: Program) -> bool:
        mesh = p.mesh
        same = mesh is not None and mesh.method == simplest and mesh.degree > 1
        return same and (p.training is not None or not trains)

    simplest = plugin_for(kind).spec_class()
    start = program(simplest, 2)
    if trains and start.training is None:
        assert kind == "flex_context_parallel"
        return
    wrong = Diff(
        output="dq" if trains else "out", what="value", expected="", actual="", error=1, budget=0.1
    )
    failure = Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.EAGER, diffs=(wrong,)
    )
    text = repro(reduced(start, fails), failure)
    ast.parse(text)
    assert len(text.splitlines()) <= (BACKWARD if trains else FORWARD), text


def test_a_method_gives_way_to_none() -> None:
    assert reduced(PROGRAMS["ring-zigzag"], lambda p: p.training is not None).mesh is None


def test_what_is_drawn_is_valid_and_covers_the_methods() -> None:
    drawn = generate(5, 300, profile="parallel")
    assert [problem for one in drawn for problem in problems(one)] == []
    meshes = [one.mesh for one in drawn if one.mesh is not None]
    assert {mesh.method.kind for mesh in meshes if mesh.method} == {*KINDS}
    assert {mesh.ranks for mesh in meshes} == {"simulated", "processes"}
    assert max(mesh.degree for mesh in meshes) == 64
    assert max(cost(one.shape) for one in drawn) <= MAX_COST


def test_parts_are_cut_as_torch_cuts_them() -> None:
    assert chunks(5, 4) == [2, 2, 1, 0]
    assert chunks(8, 4) == [2, 2, 2, 2]


def test_ranks_take_turns_in_one_order() -> None:
    def run(turns: Turns) -> list[int]:
        seen: list[int] = []

        def work(rank: int) -> None:
            for end in (turns.size, 2 * turns.size, 3 * turns.size):
                seen.append(rank)
                turns.wait("all", lambda end=end: len(seen) >= end)  # type: ignore[misc]

        turns.each(work)
        return seen

    first, second = run(Turns(4)), run(Turns(4))
    assert first == second
    assert sorted(first) == sorted([*range(4)] * 3)


def test_ranks_that_wait_for_one_another_are_stuck_at_once_and_can_go_on_later() -> None:
    turns = Turns(3)
    with pytest.raises(Stuck) as stuck:
        turns.each(lambda rank: None if rank == 2 else turns.wait(f"for {rank}", lambda: False))
    assert stuck.value.waits == {0: "for 0", 1: "for 1"}
    assert turns.each(lambda rank: rank) == [0, 1, 2]


def test_what_a_rank_raises_is_told_before_that_others_wait_for_it() -> None:
    turns = Turns(2)

    def work(rank: int) -> None:
        if rank == 1:
            raise LookupError("lost its way")
        turns.wait("for the other", lambda: False)

    with pytest.raises(LookupError):
        turns.each(work)


slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("name", [name for name in METHODS if not name.startswith("flex")])
def test_any_degree_gives_what_one_does(sandbox: Sandbox, name: str, degree: int) -> None:
    each = program(METHODS[name], degree)
    if problems(each):
        assert (name, degree) == ("ring-of-ulysses", 1)
        return
    outcome = sandbox.run(source(each), Job.of(each))
    assert outcome.status == "passed", outcome


@slow
@pytest.mark.parametrize("name", LESS_ORDINARY)
def test_less_ordinary_programs_pass_too(sandbox: Sandbox, name: str) -> None:
    each = PROGRAMS[name]
    assert sandbox.run(source(each), Job.of(each)).status == "passed"


@slow
@pytest.mark.parametrize("name", ["ring", "context-parallel-balanced", "ulysses"])
def test_processes_agree(sandbox: Sandbox, name: str) -> None:
    each = program(METHODS[name], 2)
    assert each.mesh is not None
    each = replace(each, mesh=replace(each.mesh, ranks="processes"))
    assert sandbox.run(source(each), Job.of(each)).status == "passed"


@slow
def test_what_is_compiled_is_judged_on_two_dimensions(sandbox: Sandbox) -> None:
    each = PROGRAMS["ulysses-of-two-dimensions"]
    assert each.mesh is not None
    few = replace(each, mesh=replace(each.mesh, world_size=4, data=1))
    outcome = sandbox.run(source(few), Job.of(few))
    assert outcome.status == "passed", outcome


@slow
def test_flex_attention_over_ranks(sandbox: Sandbox) -> None:
    each = PROGRAMS["flex-context-parallel-lse"]
    assert sandbox.run(source(each), Job.of(each)).status == "passed"


WRONG = {
    "stale keys": ("k, v, dk, dv = rotate(k, v, dk, dv)", "_, _, dk, dv = rotate(k, v, dk, dv)"),
    "no rescaling": ("(other_lse - lse).nan_to_num().sigmoid()", "0.5 + 0 * lse"),
    "a log-sum-exp of the last block": ("torch.logaddexp(lse, other_lse)", "other_lse"),
    "another rank's mask": ("masks[(RANK - step) % SIZE]", "masks[RANK]"),
}


@slow
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_in_a_ring_is_seen(sandbox: Sandbox, what: str) -> None:
    each = program(Ring(), 2)
    text = source(each)
    assert WRONG[what][0] in text
    failure = sandbox.run(text.replace(*WRONG[what]), Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT


@slow
def test_gradients_that_are_not_summed_over_the_ranks_are_seen(sandbox: Sandbox) -> None:
    each = PROGRAMS["ring-under-fsdp"]
    failure = sandbox.run(source(each).replace("2 * w.grad", "w.grad"), Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT
    assert {diff.output for diff in failure.diffs} == {"dwq", "dwk", "dwv", "dwo"}


@slow
def test_a_rank_that_skips_a_collective_is_seen_at_once(sandbox: Sandbox) -> None:
    each = program(Ring(), 3)
    skips = "    if RANK == 1:\n        return tensors\n    received = [t"
    failure = sandbox.run(source(each).replace("    received = [t", skips), Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.HANG
    assert "rank 2: waits in recv from rank 1" in failure.evidence["ranks"]


@slow
def test_a_rank_that_issues_another_collective_is_named(sandbox: Sandbox) -> None:
    each = program(Heads(), 3)
    last = "return dist.barrier() if MESH.get_rank() == 1 else DTensor"
    text = source(each).replace("return DTensor", last)
    failure = sandbox.run(text, Job.of(each)).failure
    assert failure is not None and failure.kind is FailureKind.HANG
    assert "rank 1: waits in barrier" in failure.evidence["ranks"]
    assert failure.evidence["ranks"].endswith("went another way: rank 1")


@slow
def test_ranks_that_get_other_results_are_seen(sandbox: Sandbox) -> None:
    each = program(Heads(), 2)
    text = source(each).replace("full_tensor()", "full_tensor() + 1e-7 * MESH.get_rank()")
    failure = sandbox.run(text, Job.of(each)).failure
    assert failure is not None and failure.oracle == "replicas"


@slow
def test_a_collective_more_is_seen_though_nothing_hangs(sandbox: Sandbox) -> None:
    each = program(Heads(), 2)
    more = "MESH.get_rank() and dist.isend(out.detach().contiguous(), 0)"
    text = source(each).replace("    return DTensor", f"    {more}\n    return DTensor")
    failure = sandbox.run(text, Job.of(each)).failure
    assert failure is not None and failure.oracle == "collectives"
    assert failure.diffs[0].output == "collectives"
    assert "rank 1" in failure.evidence["collectives"]
