"""Simulated ranks that share a GPU that is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from attnfuzz.actors.sandbox.job import Deadlines, Limits
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import Flex, Kernel, Sdpa
from attnfuzz.generators.methods.specs import (
    AllGather,
    ContextParallel,
    FlexContextParallel,
    Ring,
    Ulysses,
)
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import FailureKind, Outcome
from attnfuzz.generators.model.program import Compile, Input, Mesh, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from tests.support.gpu import gpu_is_there

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not gpu_is_there(), reason="there is no GPU"),
]

CUDA = TARGETS["cuda"]
FUSED: Kernel = Sdpa(mask_form="is_causal")
MASKED: Kernel = Sdpa()
MATH: Kernel = Sdpa(backend="math")
FLEX: Kernel = Flex(block_mask=BlockMaskSpec())


def shared(method: Any, kernel: Kernel, degree: int = 4, length: int = 512) -> Program:
    """A causal attention in bfloat16 that trains."""
    half = Input(dtype="bfloat16")
    shape = Shape(q_heads=degree, kv_heads=degree, q_len=length, kv_len=length, head_dim=64)
    mesh = Mesh(world_size=degree, method=method)
    given: dict[str, Any] = {"q": half, "k": half, "v": half, "mask": Causal(), "mesh": mesh}
    return Program(kernel=kernel, shape=shape, training=Training(), **given)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Scratch.create() as scratch:
        limits = Limits(memory_mb=16384)
        with Sandbox(scratch=scratch.root, target="cuda", limits=limits) as opened:
            yield opened


def run(sandbox: Sandbox, program: Program, instead: tuple[str, str] = ("", "")) -> Outcome:
    """The outcome on the GPU; of the source with one text in the place of another."""
    assert problems(program) == [] and CUDA.unfit(program) is None
    text = CUDA.source(program)
    assert instead[0] in text
    job = CUDA.job(program, for_program(program), Deadlines())
    return sandbox.run(text.replace(*instead), job)


@pytest.mark.parametrize(
    "program",
    [
        shared(AllGather(), MASKED),
        shared(Ulysses(by="collective"), MASKED),
        shared(Ring(order="zigzag"), MATH),
        shared(ContextParallel(rotate="alltoall", balance="head_tail"), FUSED),
        shared(ContextParallel(), FUSED, degree=32),
        shared(FlexContextParallel(), FLEX),
        replace(shared(Ulysses(), MASKED), compile=Compile()),
    ],
    ids=["all_gather", "ulysses", "ring", "head_tail", "32 ranks", "flex", "compiled"],
)
def test_ranks_of_one_gpu_have_the_numbers_of_the_whole(sandbox: Sandbox, program: Program) -> None:
    outcome = run(sandbox, program)
    assert outcome.status == "passed", outcome


def test_a_wrong_gradient_on_one_rank_is_found(sandbox: Sandbox) -> None:
    program = shared(ContextParallel(), FUSED)
    twice = "t.register_hook(lambda g: g * (1 + (dist.get_rank() == 0)))"
    wrong = ("    return DTensor", f"    [{twice} for t in (q,)]\n    return DTensor")
    failure = run(sandbox, program, wrong).failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT
    assert failure.diffs[0].output == "dq"


def test_ranks_that_wait_for_one_another_are_told_at_once(sandbox: Sandbox) -> None:
    parted = ("    return DTensor", "    dist.get_rank() or dist.barrier()\n    return DTensor")
    failure = run(sandbox, shared(AllGather(), MASKED), parted).failure
    assert failure is not None and failure.kind is FailureKind.HANG
    assert "rank 0: waits in barrier" in failure.evidence["ranks"]
