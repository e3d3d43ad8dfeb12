"""The child on what eager refuses, on further draws, on lost NaN, and on gradients."""

from __future__ import annotations

from typing import Any

import pytest

from attnfuzz.actors.sandbox.job import propagates_nan
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Input, Program
from tests.support.child_programs import SDPA, TRAINING, Told, compile_settings, source, tell

pytestmark = pytest.mark.slow
LEAVES = "return tuple(torch.randn(2, 2, 8, 16, requires_grad=True) for _ in range(3))"
WHEN_COMPILED = "if torch.compiler.is_compiling():\n    {then}\n" + SDPA
DECLINES = "if not torch.compiler.is_compiling():\n    raise ValueError('declined')\n"
REFUSED = {
    "refusals": [{"pattern": "ValueError: declined", "why": "it is declined"}],
    "oracles": {"eager_alone": False},
}


def refused(then: str, extra: str = "", **job: Any) -> Told:
    """What a program tells that eager refuses, and that does `then` when it is compiled."""
    text = source(DECLINES + then, extra=extra)
    return tell(text, {"compile": compile_settings()} | REFUSED | job)


def test_what_eager_refuses_is_compiled_and_judged_by_the_reference() -> None:
    right = refused(SDPA)
    assert (right.kind, right.outcome["rejection"]) == ("rejected", "it is declined")
    assert right.refused == "it is declined"
    assert "compile" in right.phases
    wrong = refused(SDPA + " * 1.01")
    assert (wrong.kind, wrong.failure["layer"]) == ("wrong_result", "dynamo")
    both = refused("raise ValueError('declined')")
    assert (both.kind, both.outcome["rejection"]) == ("rejected", "it is declined")
    alone = refused(SDPA + " * 1.01", oracles={"eager_alone": True})
    assert alone.kind == "rejected"
    assert "compile" not in alone.phases


def test_a_compiler_that_breaks_over_what_eager_refuses_is_told_from_one_that_declines() -> None:
    breaks = "import torch._dynamo.output_graph as o\no.OutputGraph.create_proxy = None"
    internal = refused(SDPA, extra=breaks)
    assert internal.kind == "compile_error"
    assert internal.failure["raised"]["type"] == "TypeError"
    assert refused("raise NotImplementedError('not yet')").kind == "rejected"


DRAWN = "torch.manual_seed(seed)\nreturn tuple(torch.randn(2, 2, 8, 16) for _ in range(3))"


def test_further_draws_are_judged_each_by_its_own_reference() -> None:
    def drawn(attention: str) -> Told:
        text = source(attention, inputs=DRAWN, shape_arguments="seed", calls="SEEDS = [3, 4, 5]")
        return tell(text, {"compile": compile_settings()})

    assert drawn(SDPA).kind == "passed"
    factor = "torch.where(q[0, 0, 0, 0] > 1, 1.01, 1.0)"  # so of the seed 5 alone
    failure = drawn(
        WHEN_COMPILED.format(then=f"return {factor} * F.scaled_dot_product_attention(q, k, v)")
    ).failure
    assert failure["kind"] == "wrong_result"
    assert failure["diffs"][0]["call"] == 2


def test_a_nan_that_is_lost_is_a_wrong_result() -> None:
    # With fewer keys than a vector has numbers, torch 2.13 loses it itself: docs/FINDINGS.md.
    inputs = "q, k, v = (torch.randn(2, 2, 16, 16) for _ in range(3))\nq[0, 0, 0] = torch.nan\n"
    text = source(SDPA + ".nan_to_num()", inputs=inputs + "return q, k, v")
    assert tell(text).kind == "passed"
    failure = tell(text, {"oracles": {"propagates_nan": True}}).failure
    assert (failure["kind"], failure["oracle"]) == ("wrong_result", "nan")
    kept = source(SDPA, inputs=inputs + "return q, k, v")
    assert tell(kept, {"oracles": {"propagates_nan": True}}).kind == "passed"
    leaks = source(SDPA + " + 0 * q.sum()", inputs=inputs + "return q, k, v")
    assert tell(leaks).kind == "nonfinite"


def test_a_gradient_of_another_dtype_than_its_leaf_is_found_in_eager_too() -> None:
    run = TRAINING.replace('zip(["dq", "dk", "dv"], grads)', 'zip(["dq"], [grads[0].double()])')
    failure = tell(source(inputs=LEAVES, run=run)).failure
    assert (failure["kind"], failure["oracle"]) == ("metadata_mismatch", "gradients")
    assert failure["diffs"][0]["expected"] == "torch.float32"


@pytest.mark.parametrize(
    ("program", "judged"),
    [
        (Program(q=Input(values="nan")), True),
        (Program(q=Input(values="nan"), mask=Causal()), True),
        (Program(q=Input(values="nan"), mask=Causal(offset=-1)), False),
        (Program(q=Input(values="nan"), k=Input(values="nan"), mask=Causal()), False),
        (Program(q=Input(values="nan"), v=Input(values="inf")), False),
        (Program(mask=Causal()), False),
    ],
)
def test_where_nan_must_be_nan(program: Program, judged: bool) -> None:
    assert propagates_nan(program) is judged
