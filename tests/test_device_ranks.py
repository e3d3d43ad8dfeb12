"""Simulated ranks that share a device: which programs, how they are written, what is said of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.fuzz.campaign.save_case import script_for
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.methods.specs import ContextParallel, FlexContextParallel
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import Input, Mesh, Program, Shape, Surround, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.shards import stream

CUDA = TARGETS["cuda"]
HALF = Input(dtype="bfloat16")


def shared(method: Any = None, degree: int = 2, **mesh: Any) -> Program:
    return Program(
        kernel=Sdpa(mask_form="is_causal"), mask=Causal(), training=Training(),
        shape=Shape(q_len=64, kv_len=64, head_dim=64), q=HALF, k=HALF, v=HALF,
        mesh=Mesh(world_size=degree, method=method or ContextParallel(), **mesh),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (Program(kernel=Sdpa(), mesh=Mesh(world_size=2)), "mesh.method: expected one"),
        (shared(ranks="processes"), "mesh.ranks: expected simulated, as cuda is one device"),
        (
            replace(shared(module="fsdp"), surround=Surround(projections=True)),
            "mesh.module: expected none, as cuda is one device",
        ),
    ],
)
def test_ranks_that_a_card_does_not_have_are_one_sentence(program: Program, why: str) -> None:
    assert problems(program) == []
    assert str(CUDA.unfit(program)).startswith(why)


def test_ranks_on_a_card_are_all_there_and_have_the_cards_own_kernel() -> None:
    program = shared()
    assert CUDA.unfit(program) is None and CUDA.job(program, (), Deadlines()).simulated == 2
    text, virtual = CUDA.source(program), TARGETS["virtual-sm90"].source(program)
    assert 'dist.init_process_group("nccl")' in text and 'init_device_mesh("cuda", (2,))' in text
    assert 'init_process_group("fake", rank=1, world_size=2' in virtual
    for each in (text, virtual):
        assert "torch.library.impl" not in each  # the CPU's kernel under the card's name


def test_the_script_starts_a_process_for_each_rank_and_says_that_none_did() -> None:
    program = shared(degree=4)
    diff = Diff(output="dq", what="value", expected="", actual="", error=1.0, budget=0.1, call=0)
    failure = Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.EAGER, oracle="numbers",
        diffs=(diff,),
    )  # fmt: skip
    text = script_for(program, failure, CUDA)
    assert "torchrun --nproc-per-node 4 repro.py" in text
    assert "simulated ranks that share one, not run on 4 yet." in " ".join(text.split())
    assert 'dist.init_process_group("nccl")\n' in text and "FakeStore" not in text
    assert not CUDA.script_runs_here(program) and CUDA.script_runs_here(shared(degree=1))
    assert not CUDA.script_note(shared(degree=1))


def test_a_profile_of_methods_is_drawn_for_cards_with_ranks_that_share_one() -> None:
    weights = {"mixed": 1.0, "ranks": 1.0, "parallel": 1.0, "inductor-parallel": 1.0}
    assert set(CUDA.profiles(weights)) == {"mixed", "parallel", "inductor-parallel"}
    assert set(TARGETS["xpu"].profiles(weights)) == {"mixed"}
    drawn = [*islice(stream(3, profile="parallel", place=CUDA.place), 400)]
    assert [p for p in drawn if problems(p) or CUDA.unfit(p)] == []
    degrees = {p.mesh.degree for p in drawn if p.mesh is not None}
    assert {1, 2, 3, 4, 8, 16, 32, 64} <= degrees
    assert any(p.shape.q_len >= 1024 and p.training for p in drawn)
    flex = [p.mesh for p in drawn if p.mesh and isinstance(p.mesh.method, FlexContextParallel)]
    assert flex and all(mesh.degree <= 8 for mesh in flex)
