"""Programs on a GPU that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.job import Job, Limits
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Sdpa
from attnfuzz.generators.model.outcome import FailureKind, Outcome
from attnfuzz.generators.model.program import Compile, Input, Shape
from tests.support.child_programs import source
from tests.support.flex_program import trained_flex
from tests.support.gpu import gpu_is_there

needs_cuda = pytest.mark.skipif(not gpu_is_there(), reason="there is no GPU")
pytestmark = [pytest.mark.slow, needs_cuda]

SHAPE = Shape(batch=2, q_heads=4, kv_heads=2, q_len=256, kv_len=256, head_dim=64)
FLEX = replace(trained_flex(SHAPE), kernel=Flex(block_mask=BlockMaskSpec(), enable_gqa=True))
SDPA = replace(FLEX, kernel=Sdpa(enable_gqa=True), training=None)


@pytest.fixture(scope="module")
def on_gpu() -> Iterator[Callable[..., Outcome]]:
    with Scratch.create() as scratch:
        limits = Limits(memory_mb=16384)
        config = WorkerConfig(scratch=str(scratch.root), targets=("cuda", "cpu"), limits=limits)
        with Executor(config) as executor:
            yield lambda program, target="cuda": executor.run_programs(
                [program], RunSettings(target=target)
            )[0]


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Scratch.create() as scratch:
        limits = Limits(memory_mb=16384, device_memory_mb=1024)
        with Sandbox(scratch=scratch.root, target="cuda", limits=limits) as opened:
            yield opened


def test_flex_attention_trains_as_the_reference_says(on_gpu: Callable[..., Outcome]) -> None:
    outcome = on_gpu(FLEX)
    assert outcome.status == "passed", outcome


@pytest.mark.parametrize("compiled", [None, Compile(), Compile(mode="reduce-overhead")])
def test_sdpa_on_a_gpu(on_gpu: Callable[..., Outcome], compiled: Compile | None) -> None:
    outcome = on_gpu(replace(SDPA, compile=compiled))
    assert outcome.status == "passed", outcome


def test_the_cpu_goes_on_beside_it(on_gpu: Callable[..., Outcome]) -> None:
    plain = replace(SDPA, q=Input(), k=Input(), v=Input())
    before = on_gpu(plain, "cpu")
    on_gpu(plain)
    assert before.status == on_gpu(plain, "cpu").status == "passed"


ILLEGAL = """
import triton
import triton.language as tl

@triton.jit
def far_away(x, n):
    tl.store(x + n, 1.0)
"""


def test_an_illegal_access_ends_one_child_and_nothing_else(sandbox: Sandbox) -> None:
    attention = (
        "out = F.scaled_dot_product_attention(q, k, v)\nfar_away[(1,)](out, 1 << 44)\nreturn out"
    )
    outcome = sandbox.run(source(attention, extra=ILLEGAL), Job(target="cuda"))
    assert outcome.failure is not None, outcome
    assert outcome.failure.kind is FailureKind.ILLEGAL_ACCESS
    after = sandbox.run(source(), Job(target="cuda"))
    assert after.status == "passed", after


def test_a_program_has_so_much_of_the_cards_memory_as_it_is_allowed(sandbox: Sandbox) -> None:
    attention = (
        "torch.zeros(2 << 30, dtype=torch.uint8, device=q.device)\n"
        "return F.scaled_dot_product_attention(q, k, v)"
    )
    outcome = sandbox.run(source(attention), Job(target="cuda"))
    assert outcome.failure is not None, outcome
    assert outcome.failure.kind is FailureKind.OUT_OF_MEMORY


def test_a_wrong_result_of_the_card_is_found(sandbox: Sandbox) -> None:
    attention = "return F.scaled_dot_product_attention(q, k, v) * 1.001"
    outcome = sandbox.run(source(attention), Job(target="cuda"))
    assert outcome.failure is not None, outcome
    assert outcome.failure.kind is FailureKind.WRONG_RESULT
