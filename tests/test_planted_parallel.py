"""Each planted fault of programs of several ranks breaks what it says, and nothing else: a
program that meets it fails from the number of ranks on that its file names, and passes with one
fewer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.worker import Executor
from attnfuzz.generators.model.outcome import FailureKind, Outcome
from tests.support import parallel
from tests.support.preload import preload

FOLDER = Path(__file__).parent.parent / "benchmarks" / "planted_parallel"


@dataclass(frozen=True)
class Fault:
    """It shows in `body` with `settings` as `kind` at `ranks`, and not at `passes`, there with the
    settings `harmless`, if there are any; `wrong` is a result that it makes wrong."""

    name: str
    body: str
    ranks: int
    passes: int
    kind: str = "wrong_result"
    wrong: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    harmless: dict[str, Any] | None = None


RING, CAUSAL, BALANCED = parallel.RING, {"causal": True}, {"causal": True, "balance": True}
FAULTS = (
    Fault("merge_in_base_two", RING, 3, 2, wrong="out", settings={"length": 12}),
    Fault("balancer_off_by_one", RING, 4, 3, wrong="out", settings=BALANCED | {"length": 24}),
    Fault("ring_backward_stale_keys", RING, 3, 2, wrong="dq", settings={"length": 12}),
    Fault("causal_skips_the_farthest", RING, 4, 3, wrong="out", settings=CAUSAL | {"length": 12}),
    Fault("rotation_turns_back", RING, 3, 2, wrong="out",
          settings=CAUSAL | {"length": 12, "rotate": "alltoall"}),
    Fault("partial_gradient_overwritten", RING, 2, 2, wrong="dq", settings=BALANCED,
          harmless=CAUSAL),
    Fault("uneven_shards_rolled", parallel.WHOLE, 3, 2, settings={"length": 8}),
    Fault("gradient_of_last_shard", parallel.GATHER, 4, 3, wrong="dq", settings={"length": 12}),
    Fault("alltoall_at_four", parallel.ULYSSES, 4, 2, settings={"heads": 4}),
    Fault("gradients_summed_shifted", parallel.GATHER, 3, 2, wrong="dk", settings={"length": 12}),
    Fault("gathers_in_another_order", parallel.GRID, 4, 2, "crash"),
    Fault("replica_drifts", parallel.GATHER, 3, 2, "metadata_mismatch", settings={"length": 12}),
    Fault("all_gather_at_three", parallel.FUNCTIONAL_GATHER, 3, 4, settings={"length": 12}),
    Fault("alltoall_sends_own_on", parallel.EXCHANGE, 2, 4, settings={"heads": 4}),
    Fault("empty_shard_skips_reduction", parallel.GATHER, 3, 2, "hang", settings={"length": 2}),
    Fault("message_nobody_receives", parallel.MESSAGES, 3, 2, "metadata_mismatch",
          settings={"length": 12}),
    Fault("messages_handed_over_reversed", parallel.MESSAGES, 4, 3, settings={"length": 12}),
    Fault("third_rank_aborts", parallel.WHOLE, 3, 2, "crash", settings={"length": 2}),
)  # fmt: skip
NEED_A_COMPILER = {"cp_mask_along_keys", "recompiled_without_its_gather"}
"""They show in compiled programs alone, which would cost each rank seconds: campaigns do that."""


def test_every_fault_has_a_program() -> None:
    there = {file.stem for file in FOLDER.glob("*.py")}
    assert {fault.name for fault in FAULTS} | NEED_A_COMPILER == there
    assert len(there) >= 14


def outcome(sandbox: Sandbox, fault: Fault, ranks: int, settings: dict[str, Any]) -> Outcome:
    job = Job(ranks=ranks, deadlines=Deadlines(idle=3.0))
    text = parallel.program(fault.body, **settings)
    return sandbox.run(text, job, confirm_hang=False)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_shows_from_its_number_of_ranks_on(executor: Executor, fault: Fault) -> None:
    preload(executor, FOLDER / f"{fault.name}.py")
    sandbox = executor._sandbox("cpu")
    failure = outcome(sandbox, fault, fault.ranks, fault.settings).failure
    assert failure is not None
    assert failure.kind is FailureKind(fault.kind), failure
    assert fault.wrong in {diff.output for diff in failure.diffs} | {""}
    harmless = fault.settings if fault.harmless is None else fault.harmless
    fewer = outcome(sandbox, fault, fault.passes, harmless)
    assert fewer.status == "passed", fewer
