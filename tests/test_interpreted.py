"""Kernels for a card, interpreted: right ones pass, and wrong ones are caught by their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import FailureKind, Layer, Outcome
from attnfuzz.generators.model.program import Compile, Input, Program, Shape, Training
from attnfuzz.generators.model.scores import Score, Softcap
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "benchmarks" / "planted_gpu"
TARGET = "interpreted-sm90"
RAGGED_FLEX = Flex(block_mask=BlockMaskSpec(), enable_gqa=True)
RAGGED = Program(
    kernel=RAGGED_FLEX,
    mask=Causal(),
    shape=Shape(batch=1, q_heads=4, kv_heads=2, q_len=130, kv_len=130, head_dim=16),
    compile=Compile(),
    training=Training(),
)
BY_HAND = Program(
    kernel=Handwritten(),
    mask=Causal(),
    shape=Shape(batch=1, q_heads=2, kv_heads=2, q_len=33, kv_len=33, head_dim=16),
    compile=Compile(),
    training=Training(),
)
FORWARD = replace(RAGGED, training=None)

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Run]:
    """Runs a program, with the name of a planted fault or without one."""
    open_ones: dict[str | None, Executor] = {}
    with Scratch.create() as scratch:

        def run(program: Program, fault: str | None = None) -> Outcome:
            if fault not in open_ones:
                preload = (str(FAULTS / f"{fault}.py"),) if fault else ()
                open_ones[fault] = Executor(
                    WorkerConfig(
                        scratch=str(scratch.root),
                        toolchain=str(TOOLCHAIN),
                        targets=(TARGET,),
                        preload=preload,
                    )
                )
            (outcome,) = open_ones[fault].run_programs([program])
            return outcome

        yield run
        for executor in open_ones.values():
            executor.close()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (replace(RAGGED, compile=None), "compile.backend"),
        (replace(RAGGED, compile=Compile(backend="aot_eager")), "compile.backend"),
        (
            replace(RAGGED, kernel=Flex(kernel_options={"ROWS_GUARANTEED_SAFE": True}), mask=None),
            "kernel.kernel_options.ROWS_GUARANTEED_SAFE",
        ),
    ],
)
def test_what_says_nothing_of_a_card_is_not_interpreted(program: Program, says: str) -> None:
    unfit = TARGETS[TARGET].unfit(program)
    assert unfit is not None and unfit.startswith(says)
    assert TARGETS["cpu"].unfit(program) is None


def test_running_interpreted_kernels_may_take_longer_and_compiling_them_may_not() -> None:
    on_cpu = Deadlines(compile=100, forward=10, backward=20, total=200)
    slower = Deadlines(compile=100, forward=60, backward=120, total=350)
    assert TARGETS[TARGET].deadlines(on_cpu) == slower
    assert TARGETS["virtual-sm90"].deadlines(on_cpu) == TARGETS["cpu"].deadlines(on_cpu) == on_cpu
    assert TARGETS["cuda"].deadlines(on_cpu) == replace(on_cpu.times(2), idle=math.inf)


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        (RAGGED, {"interpreted.template", "interpreted.persistent reduction"}),
        (replace(RAGGED, compile=Compile(dynamic=True)), {"interpreted.template"}),
        (replace(FORWARD, q=Input(dtype="bfloat16"), k=Input(dtype="bfloat16"),
                 v=Input(dtype="bfloat16")), {"interpreted.template"}),
        (replace(FORWARD, q=Input(dtype="bfloat16"), k=Input(dtype="bfloat16"),
                 v=Input(dtype="bfloat16"), score_mod=Score(),
                 kernel=replace(RAGGED_FLEX, kernel_options={"PRESCALE_QK": True})),
         {"interpreted.template"}),
        (replace(FORWARD, autocast="float16"), {"interpreted.template"}),
        (BY_HAND, {"interpreted.persistent reduction"}),
    ],
    ids=["forward and backward", "dynamic", "bfloat16", "bfloat16 scaled", "autocast", "by hand"],
)  # fmt: skip
def test_what_inductor_generates_is_run_and_right(
    interpreted: Run, program: Program, kinds: set[str]
) -> None:
    outcome = interpreted(program)
    assert outcome.status == "passed", outcome
    assert kinds <= set(outcome.features)
    assert "numbers" not in outcome.skipped


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(
    ("fault", "program", "kind", "output"),
    [
        ("flex_ragged_keys", FORWARD, FailureKind.WRONG_RESULT, "out"),
        ("flex_gqa_head", FORWARD, FailureKind.WRONG_RESULT, "out"),
        ("flex_dq_first_tile", RAGGED, FailureKind.NONFINITE, "dq"),
    ],
)
def test_a_fault_of_a_kernel_shows_in_the_numbers(
    interpreted: Run, fault: str, program: Program, kind: FailureKind, output: str
) -> None:
    failure = interpreted(program, fault).failure
    assert failure is not None
    assert (failure.kind, failure.layer) == (kind, Layer.INDUCTOR)
    assert failure.diffs[0].output == output


@pytest.mark.slow
@needs_kernels
def test_a_store_outside_every_buffer_is_caught(interpreted: Run) -> None:
    merged = replace(
        BY_HAND, kernel=Handwritten(out_layout="merged"), training=None, mask=None,
        shape=Shape(q_len=143, kv_len=143), autocast="bfloat16",
    )  # fmt: skip
    outcome = interpreted(merged)
    assert outcome.status == "passed" and "interpreted.pointwise" in outcome.features
    failure = interpreted(merged, "pointwise_one_beyond").failure
    assert failure is not None and failure.raised is not None
    assert failure.raised.message.startswith(("load from 1 of", "store to 1 of"))


@pytest.mark.slow
@needs_kernels
def test_scores_are_prescaled_whatever_is_done_with_them(interpreted: Run) -> None:
    """torch's own: see PRESCALE_QK in docs/FINDINGS.md."""
    capped = replace(
        FORWARD, score_mod=Softcap(inner=Score(), cap=1.0), kernel=Flex(enable_gqa=True), mask=None
    )
    assert interpreted(capped).status == "passed"
    prescaled = Flex(enable_gqa=True, kernel_options={"PRESCALE_QK": True})
    failure = interpreted(replace(capped, kernel=prescaled)).failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT
