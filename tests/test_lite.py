"""Inductor without generated code: its graph passes are at work, and torch's own kernels run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.worker import Executor
from attnfuzz.generators.kernels.specs import Handwritten, Sdpa
from attnfuzz.generators.model.codec import load_program
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Compile, Input, Layout, Program, Shape
from attnfuzz.generators.strategies.running import LITE, is_lite
from attnfuzz.generators.strategies.shards import shard_programs
from attnfuzz.generators.strategies.swarm import Place
from tests.support.bert import BERT
from tests.support.preload import preload

ALONE = Compile(options=LITE)
FAULTS = Path(__file__).parent.parent / "benchmarks"
WRITTEN = load_program(BERT)
TURNED = Input(layout=Layout(order=(0, 2, 1, 3)))
"""What is given as `[B, L, H, D]` is contiguous there, as models have it."""
OF_BERT = replace(
    WRITTEN, shape=replace(WRITTEN.shape, batch=2), q=TURNED, k=TURNED, v=TURNED, compile=ALONE
)


def drawn(profile: str, place: Place, count: int = 12) -> list[Program]:
    """Programs of that many shards that Inductor compiles."""
    shards = (shard_programs(7, index, 6, {profile: 1}, place=place) for index in range(count))
    every = [program for shard in shards for program in shard]
    return [one for one in every if one.compile and one.compile.backend == "inductor"]


def test_most_graphs_are_rewritten_alone() -> None:
    lite = [is_lite(one.compile) for one in drawn("graph", Place())]
    assert 0.5 < sum(lite) / len(lite) < 0.9


def test_on_a_card_code_is_what_counts() -> None:
    card = Place("cuda", gpu=True)
    assert not any(is_lite(one.compile) for one in drawn("graph", card))


def test_graphs_that_are_trained_are_compiled_once_where_code_is_generated() -> None:
    trained = [one for one in drawn("graph", Place(), 96) if one.training is not None]
    assert any(one.calls for one in trained if is_lite(one.compile))
    assert not any(one.calls for one in trained if not is_lite(one.compile))


@pytest.mark.slow
def test_attention_is_fused_and_nothing_is_generated(executor: Executor) -> None:
    shape = Shape(batch=2, q_heads=2, kv_heads=2, q_len=16, kv_len=16, head_dim=8)
    program = Program(kernel=Handwritten(), shape=shape, compile=ALONE)
    (outcome,) = executor.run_programs([program])
    assert outcome.status == "passed"
    assert "inductor.fuse_attention" in outcome.features
    assert not any(feature.startswith("kernel:cpp") for feature in outcome.features)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "status"), [(255, "passed"), (256, "rejected")])
def test_what_torch_has_no_indices_for_is_refused(
    executor: Executor, length: int, status: str
) -> None:
    shape = Shape(q_heads=1, kv_heads=1, q_len=length, kv_len=length)
    kernel = Sdpa(mask_form="is_causal", dropout_p=0.5)
    program = Program(kernel=kernel, shape=shape, mask=Causal(), compile=ALONE)
    (outcome,) = executor.run_programs([program])
    assert outcome.status == status
    assert outcome.rejection is None or "16-bit indices" in outcome.rejection


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "program"),
    [
        ("planted/fusion_scale.py", Program(kernel=Handwritten(), compile=ALONE)),
        ("planted_graph/fusion_mask_of_batches.py", OF_BERT),
    ],
)
def test_a_planted_fault_of_a_fusion_shows(
    executor: Executor, fault: str, program: Program
) -> None:
    """Patterns are registered once, maybe before a fault is planted: it must not depend on that."""
    preload(executor, FAULTS / fault)
    outcomes = executor.run_programs([program, program])
    assert [one.failure and one.failure.kind.value for one in outcomes] == ["wrong_result"] * 2
