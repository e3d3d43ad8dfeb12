"""What a campaign makes of a finding that it has not the time to finish."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.fuzz.campaign import finding_stages
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.finding_stages import Minimizing, suspects_of
from attnfuzz.fuzz.campaign.known_buckets import load_known
from attnfuzz.fuzz.campaign.transitions import Transition
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Outcome, Phase
from attnfuzz.generators.model.program import Compile, Input, Layout, Program, Shape
from tests.support.fake_pool import raised, wrong


@pytest.mark.parametrize(
    ("outcome", "kinds", "parked"),
    [
        (wrong("out"), {"wrong_result"}, True),
        (wrong("out"), {"crash"}, False),
        (raised("it says by itself what is wrong"), {"compile_error"}, False),
    ],
)
def test_a_search_cut_short_gives_no_bucket_beside_one_of_its_kind(
    outcome: Outcome, kinds: set[str], parked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is that one's cause only its minimized program would tell."""
    program = Program(mask=Causal(), shape=Shape(q_heads=4, kv_heads=4, q_len=64, kv_len=64))
    finding = Finding.of(program, outcome, "cpu")
    context: Any = SimpleNamespace(
        winding_down=True,
        deadlines=Deadlines(),
        config=SimpleNamespace(minimize=SimpleNamespace(max_candidates=100, seconds=100)),
        buckets=SimpleNamespace(explaining=lambda target: (), kinds=lambda: kinds),
    )
    row = SimpleNamespace(target="cpu")
    stage = Minimizing(SimpleNamespace(finding=finding, row=row, attributed=None), context)  # type: ignore[arg-type]
    monkeypatch.setattr(finding_stages, "minimized", lambda *_: Transition(state=State.MINIMIZED))
    task = stage.next_task()
    assert isinstance(task, RunTask)
    stage.report(task, [outcome])
    assert stage.has_progress() and finding.simplified
    stage.wind_down()
    after = stage.transition()
    assert after.parked is parked and (after.state is State.MINIMIZED) is not parked


@pytest.mark.parametrize(("unread", "told"), [("nan", True), ("values", False)])
def test_counterfactuals_tell_what_reads_nan_beside_a_tensor(
    unread: Any, told: bool, tmp_path: Path
) -> None:
    """Of other results that are not finite it depends on what lies in memory."""
    config = CampaignConfig()
    layout = Layout(order=(2, 3, 0, 1), pad=(0, 1, 0, 0), unread=unread)
    program = Program(kernel=Flex(), v=Input(layout=layout), compile=Compile())
    diff = Diff(output="out", what="value", expected="1", actual="nan")
    failure = Failure(
        kind=FailureKind.NONFINITE, phase=Phase.CHECK, layer=Layer.INDUCTOR, diffs=(diff,)
    )
    outcome = Outcome(status="failed", failure=failure)
    with Store(tmp_path / "campaign.sqlite") as store:
        buckets = BucketIndex(store, tmp_path, load_known(config))
        context: Any = SimpleNamespace(config=config, buckets=buckets)
        row: Any = SimpleNamespace(outcome=outcome, program=program, target="cpu")
        found = [(bucket.known_issue, *programs) for bucket, programs in suspects_of(row, context)]
    assert found == ([("shipped: cdf7315f", replace(program, v=Input()))] if told else [])
