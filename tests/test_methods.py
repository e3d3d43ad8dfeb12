"""Methods by which ranks share one attention: what is valid, how it is written and simplified."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.child.simulation.turns import Stuck, Turns
from attnfuzz.actors.sandbox.job import launched_ranks_of, ranks_of, simulated_ranks_of
from attnfuzz.generators.kernels.specs import Handwritten, Sdpa
from attnfuzz.generators.methods.registry import KINDS
from attnfuzz.generators.methods.sharding import chunks
from attnfuzz.generators.methods.specs import (
    AllGather,
    ContextParallel,
    Heads,
    Ring,
    Ulysses,
)  # fmt: skip
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Mesh,
    Program,
    Shape,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shapes import cost
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import MAX_COST
from tests.support.method_programs import (
    BY_MANAGER,
    PROGRAMS,
    UNEVEN,
    program,
    reduced,
)

GOLDEN = Path(__file__).parent / "golden" / "methods"


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
        ("calls", program(Ring(), calls=(Call(batch=1, q_len=16, kv_len=16),))),
        ("calls[0].q_len", program(AllGather(), calls=(Call(batch=1, q_len=9, kv_len=8),))),
        (
            "shape.q_len",
            program(AllGather(), shape=UNEVEN, calls=(Call(batch=1, q_len=8, kv_len=8),)),
        ),
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


def test_ranks_begin_with_the_configuration_of_who_makes_them() -> None:
    """torch's configuration is in context variables, which a new thread has none of."""
    setting = ContextVar("setting", default="default")
    setting.set("set")
    assert Turns(2).each(lambda rank: setting.get()) == ["set", "set"]


def test_what_a_rank_raises_is_told_before_that_others_wait_for_it() -> None:
    turns = Turns(2)

    def work(rank: int) -> None:
        if rank == 1:
            raise LookupError("lost its way")
        turns.wait("for the other", lambda: False)

    with pytest.raises(LookupError):
        turns.each(work)
