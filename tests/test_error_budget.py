"""How far each block of a result may be off."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnfuzz.actors.oracles.error_budget import BLOCK, ErrorBudget
from attnfuzz.actors.runs import ReproTask
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.scripts import run_repro
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.fuzz.campaign.save_case import script_for
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Failure, FailureKind
from attnfuzz.generators.model.program import Input, Program, Shape, Training

EPS = 2.0**-8
LARGE, SMALL = torch.full((BLOCK,), 100.0), torch.full((BLOCK,), 1.0)
BOTH = torch.cat([LARGE, SMALL]).double()
ALL = torch.ones(2 * BLOCK, dtype=torch.bool)


def budget(*yardsticks: torch.Tensor, judged: torch.Tensor = ALL) -> ErrorBudget:
    return ErrorBudget(BOTH, yardsticks, judged, EPS, 0.0)


def test_a_block_of_small_values_has_a_budget_of_its_own() -> None:
    found = budget(BOTH * (1 + EPS)).without_noise()
    assert found.whole == pytest.approx(10 * 100 * EPS + 4 * 100 * EPS)
    assert found.blocks.tolist() == pytest.approx([found.whole, found.whole / 100])
    assert found.of_elements(BLOCK + 3)[-4:].tolist() == pytest.approx(
        [found.whole, *[found.whole / 100] * 3]
    )


def test_the_block_that_rounding_hits_worst_goes_for_all() -> None:
    unlucky = torch.cat([LARGE, SMALL * 1.5]).double()
    found = budget(unlucky).without_noise()
    assert found.blocks[1] == pytest.approx(10 * 0.5 + 4 * EPS)
    other = torch.cat([LARGE * 1.5, SMALL]).double()
    assert budget(other).without_noise().blocks[1] == pytest.approx(10 * 0.5 + 4 * EPS)
    with_noise = budget(BOTH).with_noise((unlucky - BOTH).abs())
    assert with_noise.whole == pytest.approx(10 * 0.5 + 4 * 100 * EPS)
    assert with_noise.blocks[1] == pytest.approx(4 * 0.5 + 4 * EPS)


@pytest.mark.parametrize("left", [0.0, 1e-15], ids=["nothing", "what float64 leaves"])
def test_where_values_cancel_to_nothing_all_have_the_budget_of_the_whole(left: float) -> None:
    expected = torch.cat([LARGE, torch.full((BLOCK,), left)]).double()
    rounded = ErrorBudget(expected, [expected + 0.25], ALL, EPS, 0.0).without_noise()
    assert rounded.blocks.tolist() == pytest.approx([rounded.whole] * 2)
    exact = ErrorBudget(expected, [expected], ALL, EPS, 0.0).without_noise()
    assert exact.blocks.tolist() == pytest.approx([exact.whole, 4 * EPS * left])


def test_what_is_not_judged_makes_no_budget() -> None:
    judged = ALL.clone()
    judged[0] = False
    wild = BOTH.clone()
    wild[0] = torch.inf
    found = budget(wild, judged=judged).without_noise()
    assert found.whole == pytest.approx(4 * 100 * EPS)


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=3 * BLOCK),
    st.floats(0, 1, width=32),
    st.floats(0.25, 4, width=32),
)
def test_no_block_may_be_further_off_than_the_whole(
    values: list[float], error: float, factor: float
) -> None:
    expected = torch.tensor(values, dtype=torch.float64)
    judged = torch.ones(len(values), dtype=torch.bool)

    def budgets(scale: float) -> ErrorBudget:
        return ErrorBudget(expected * scale, [expected * scale * (1 + error)], judged, EPS, 0.0)

    found, scaled = budgets(1.0).without_noise(), budgets(factor).without_noise()
    assert bool((found.blocks <= found.whole).all()) and bool((found.blocks >= 0).all())
    assert scaled.blocks.tolist() == pytest.approx((found.blocks * factor).tolist(), rel=1e-9)
    alone = ErrorBudget(expected[:BLOCK], [expected[:BLOCK]], judged[:BLOCK], EPS, 0.0)
    assert alone.without_noise().blocks.tolist() == [alone.without_noise().whole]


HALF = Input(dtype="bfloat16")
CAUSAL = Program(
    kernel=Sdpa(mask_form="is_causal"), mask=Causal(), training=Training(), q=HALF, k=HALF, v=HALF,
    shape=Shape(q_len=1024, kv_len=1024, head_dim=64),
)  # fmt: skip
LATE = "    q.register_hook(lambda g: torch.cat([g[:, :, :640], 1.75 * g[:, :, 640:]], dim=2))\n"
CPU = TARGETS["cpu"]


def late_rows(text: str) -> str:
    """A source or script with the gradient of late queries 1.75 times as large."""
    return text.replace("    return F.scaled", LATE + "    return F.scaled")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def found(sandbox: Sandbox) -> Failure:
    job = CPU.job(CAUSAL, (), Deadlines())
    assert sandbox.run(CPU.source(CAUSAL), job).status == "passed"
    failure = sandbox.run(late_rows(CPU.source(CAUSAL)), job).failure
    assert failure is not None
    return failure


@pytest.mark.slow
def test_late_rows_of_a_causal_gradient_are_seen_by_their_own_budget(found: Failure) -> None:
    assert found.kind is FailureKind.WRONG_RESULT
    diff = found.diffs[0]
    assert diff.output == "dq" and diff.block is not None and diff.block[0] >= 640 * 64
    assert diff.error is not None and diff.budget is not None and diff.error > diff.budget
    above = found.evidence["error map of dq"].splitlines()[1:]
    assert set("".join(above[:40])) == {"."} and "0" in "".join(above[40:])


@pytest.mark.slow
def test_its_script_looks_at_that_block(found: Failure, tmp_path: Path) -> None:
    text = script_for(CAUSAL, found, CPU)
    assert "rounding explains" in text and "there" in text.splitlines()[0]
    assert found.diffs[0].block is not None
    start, stop = found.diffs[0].block
    assert f".flatten()[{start}:{stop}].abs().max()" in text
    for script, passes in ((text, True), (late_rows(text), False)):
        task = ReproTask(script, sys.executable, str(tmp_path), 1, 120.0)
        (ran,) = run_repro(task)
        assert (ran.status == 0) == passes, ran.stderr
