"""Programs whose ranks share an attention by a method, on a card or an NPU that is not there: one
rank of a group whose others are not there either, at any degree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, NpuFusionAttention, Sdpa
from attnfuzz.generators.methods.specs import (
    AllGather,
    ContextParallel,
    FlexContextParallel,
    Heads,
    Method,
    Ring,
    Ulysses,
)
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer, Outcome, Phase, Raised
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
from attnfuzz.generators.strategies.shards import stream
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels
from tests.support.preload import preload

CARD, NPU = "virtual-sm90", "virtual-ascend910b"
DEGREE = 32
SHAPE = Shape(q_heads=DEGREE, kv_heads=DEGREE, q_len=1024, kv_len=1024, head_dim=64)
FAULT = """\
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel._attention as cp

right = cp._AllGatherRotater.next_buffer


def wrong(self):
    if dist.get_world_size(self._pg) > 16:
        raise ValueError("more ranks than are known here")
    return right(self)


cp._AllGatherRotater.next_buffer = wrong
"""


def shared(method: Method, kernel: Any = None, backend: Any = None, **other: Any) -> Program:
    """A causal attention that is trained, shared by 32 ranks, compiled where a back-end is given:
    the whole of it, or what each rank computes by itself where torch compiles no more."""
    bf16 = Input(dtype="bfloat16")
    via: Any = "local" if isinstance(method, FlexContextParallel | Ring) else "compile"
    program = Program(
        kernel=kernel or Sdpa(),
        mask=Causal(),
        shape=SHAPE,
        q=bf16, k=bf16, v=bf16,
        training=Training(),
        mesh=Mesh(world_size=DEGREE, method=method),
        compile=Compile(backend=backend, via=via) if backend else None,
    )  # fmt: skip
    return replace(program, **other)


FUSED = Sdpa(mask_form="is_causal")
PLAIN = Program(kernel=Sdpa())
FLEX = Flex(block_mask=BlockMaskSpec())
MANY = {"shape": replace(SHAPE, q_heads=1, kv_heads=1, q_len=4096, kv_len=4096)}


def few(program: Program) -> Program:
    """Of two ranks: a ring is written out for as many steps as there are ranks."""
    assert program.mesh is not None
    shape = replace(SHAPE, q_heads=2, kv_heads=2, q_len=128, kv_len=128)
    return replace(program, shape=shape, mesh=replace(program.mesh, world_size=2))


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    """Runs programs on both."""
    with Scratch.create() as scratch:
        config = WorkerConfig(
            scratch=str(scratch.root), toolchain=str(TOOLCHAIN), targets=(CARD, NPU)
        )
        with Executor(config) as opened:
            yield opened


@pytest.fixture
def on(executor: Executor) -> Callable[[str, Program], Outcome]:
    """Runs a program on a target."""

    def run(target: str, program: Program) -> Outcome:
        assert problems(program) == [] and TARGETS[target].unfit(program) is None
        return executor.run_programs([program], RunSettings(target=target))[0]

    return run


def test_a_card_is_one_rank_of_a_group_that_is_not_there() -> None:
    program = shared(ContextParallel(), FUSED, "inductor", mesh=Mesh(world_size=DEGREE))
    assert 'init_process_group("fake", rank=0, world_size=32' in source(program, "cuda")
    program = shared(ContextParallel(), FUSED, "inductor")
    text = source(program, "cuda")
    assert 'init_process_group("fake", rank=16, world_size=32, store=FakeStore())' in text
    assert 'init_device_mesh("cuda", (32,))' in text
    assert "library.impl" not in text and "library.impl" in source(program)
    raised = Raised(type="RuntimeError", message="no")
    failure = Failure(kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, raised=raised)
    script = repro(program, failure, device="cuda")
    assert "rank=16, world_size=32" in script and "torchrun" not in script
    assert "torchrun --nproc-per-node 32" in repro(program, failure)


@pytest.mark.parametrize(
    ("mesh", "length", "rank"),
    [
        (Mesh(world_size=1, method=AllGather()), 8, 0),
        (Mesh(world_size=2, method=AllGather()), 8, 1),
        (Mesh(world_size=3, method=Ring()), 9, 1),
        (Mesh(world_size=4, method=Ring(ulysses=2)), 8, 2),
        (Mesh(world_size=8, data=2, method=AllGather()), 8, 6),
        (Mesh(world_size=4, method=AllGather()), 9, 3),
        (Mesh(world_size=4, method=Ring(), lengths=(4, 0, 4, 1)), 9, 3),
    ],
)
def test_the_rank_has_blocks_before_and_after_or_the_short_part(
    mesh: Mesh, length: int, rank: int
) -> None:
    shape = Shape(batch=2, q_heads=2, kv_heads=2, q_len=length, kv_len=length)
    program = shared(AllGather(), mesh=mesh, shape=shape)
    assert f'"fake", rank={rank}, world_size={mesh.world_size}' in source(program, "cuda")


HALF = "q.dtype: expected float16 or bfloat16, as a card's flash takes no more, on virtual-sm90"


@pytest.mark.parametrize(
    ("target", "program", "why"),
    [
        (CARD, shared(ContextParallel(), FUSED, q=Input(), k=Input(), v=Input()), HALF),
        (NPU, shared(ContextParallel(), FUSED), "mesh.method.kind: expected another: fused SDPA"),
        ("cpu", shared(ContextParallel(), FUSED, "inductor"), "training: expected none where"),
        ("cpu", shared(FlexContextParallel(), FLEX, **MANY), "training: expected none: flex_att"),
        ("xpu", shared(AllGather()), "mesh: expected none, as xpu is one device"),
        (
            CARD,
            replace(PLAIN, mesh=Mesh(world_size=2), grad_mode="inference_mode"),
            "grad_mode: expected another with a mesh, as virtual-sm90 has fake tensors",
        ),
        (
            CARD,
            shared(
                AllGather(),
                surround=Surround(projections=True),
                mesh=Mesh(world_size=DEGREE, method=AllGather(), module="fsdp"),
            ),
            "mesh.module: expected none, as virtual-sm90 has one rank, without data",
        ),
    ],
)
def test_what_a_device_does_not_have_is_one_sentence(
    target: str, program: Program, why: str
) -> None:
    assert problems(program) == []
    assert str(TARGETS[target].unfit(program)).startswith(why)


def test_what_is_drawn_has_many_ranks_and_is_compiled() -> None:
    drawn = {
        target: [
            p
            for p in islice(stream(1, profile=profile, place=TARGETS[target].place), 300)
            if p.mesh is not None
        ]
        for target, profile in ((CARD, "inductor-parallel"), (NPU, "npu-parallel"))
    }
    alike = [*islice(stream(1, profile="ranks", place=TARGETS[CARD].place), 200)]
    assert sum(p.mesh is not None for p in alike) > 80
    assert not [p for p in alike if problems(p) or TARGETS[CARD].unfit(p)]
    for target, programs in drawn.items():
        assert not [p for p in programs if problems(p) or TARGETS[target].unfit(p)]
        degrees = {p.mesh.degree for p in programs if p.mesh is not None and p.compile is not None}
        assert {1, 2, 3, 8, 32, 64} <= degrees
    flex = [p for p in drawn[CARD] if isinstance(p.kernel, Flex)]
    assert sum(p.training is not None for p in flex) > 20
    npu = [p for p in drawn[NPU] if isinstance(p.kernel, NpuFusionAttention)]
    assert len(npu) > 250 and sum(p.mask is not None for p in npu) > 100


@pytest.mark.slow
@needs_kernels
def test_what_ranks_share_is_compiled_for_a_card(on: Callable[[str, Program], Outcome]) -> None:
    """Forward and backward, by the card's own fused SDPA, whose gradients lie in another order:
    Inductor's passes change strides on the way, which is no failure."""
    outcome = on(CARD, few(shared(ContextParallel(operator="efficient"), FUSED, "inductor")))
    assert outcome.status == "passed", outcome
    assert any("_efficient_attention_backward" in feature for feature in outcome.features)
    assert outcome.kernels


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(
    "program",
    [
        shared(FlexContextParallel(balance="head_tail"), FLEX, "aot_eager", **MANY),
        shared(Ring(order="zigzag"), Sdpa(backend="math"), "aot_eager"),
        shared(AllGather(), backend="aot_eager"),
        shared(Heads(), backend="aot_eager"),
    ],
    ids=["flex_context_parallel", "ring", "all_gather", "heads"],
)
def test_what_32_ranks_share_is_trained_on_a_card(
    on: Callable[[str, Program], Outcome], program: Program
) -> None:
    assert on(CARD, program).status == "passed"


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize("method", [AllGather(), Ulysses(), Heads(), Ring()], ids=str)
def test_what_32_ranks_share_is_the_npus(
    on: Callable[[str, Program], Outcome], method: Method
) -> None:
    """By the NPU's own operator, but for a ring, whose blocks are plain operations."""
    fusion = NpuFusionAttention(input_layout="BSH")
    kernel = Sdpa(backend="math") if isinstance(method, Ring) else fusion
    outcome = on(NPU, shared(method, kernel, "aot_eager"))
    assert outcome.status == "passed", outcome


@pytest.mark.slow
@needs_kernels
def test_a_fault_of_many_ranks_shows_on_one_card(
    on: Callable[[str, Program], Outcome], executor: Executor, tmp_path: Path
) -> None:
    file = tmp_path / "fault.py"
    file.write_text(FAULT)
    preload(executor, file)
    program = shared(ContextParallel(), FUSED)
    failure = on(CARD, program).failure
    assert failure is not None and failure.layer == Layer.EAGER
    assert failure.raised is not None and "more ranks" in failure.raised.message
    fewer = replace(program, mesh=Mesh(world_size=16, method=ContextParallel()))
    assert on(CARD, fewer).failure is None
