"""A program is data: a function that it names is called only where a person has said so."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.actors.shard import Kept
from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.case import Case, write_bucket, write_case
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.interruptions import CampaignError
from attnfuzz.fuzz.campaign.resume import check_functions
from attnfuzz.fuzz.errors import EXIT_BAD_INPUT, EXIT_CHANGED, EXIT_OK
from attnfuzz.generators.kernels.specs import Function
from attnfuzz.generators.model.codec import dump_program
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer, Outcome, Phase, Raised
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.swarm import UserFunction
from tests.support.shard_reports import Report

Run = Callable[..., "subprocess.CompletedProcess[str]"]

FOREIGN = Program(kernel=Function(target="foreign:attention"))
FAILURE = Failure(
    kind=FailureKind.RUNTIME_ERROR, phase=Phase.EAGER, layer=Layer.EAGER, oracle="refusal",
    raised=Raised(type="RuntimeError", message="no attention today"),
)  # fmt: skip
MODULE = """
import pathlib
pathlib.Path({canary!r}).touch()
def attention(q, k, v):
    raise RuntimeError("no attention today")
"""


def record(corpus: Path) -> Path:
    """A case in `corpus` of a function of somebody's."""
    bucket = new_bucket(signature(FAILURE, FOREIGN), FAILURE, features(FOREIGN))
    case = Case(
        program=FOREIGN, failure=FAILURE, environment={"torch": "2.13.0"}, runs=1, failures=1,
        minimized=True, repro="",
    )  # fmt: skip
    write_bucket(corpus, bucket)
    return write_case(corpus, bucket, case)


@pytest.mark.parametrize("command", ["run", "minimize", "replay"])
def test_a_function_that_nobody_allowed_is_refused(
    command: str, scratch: Path, attnfuzz: Run
) -> None:
    folder = record(scratch / "corpus")
    result = attnfuzz(command, folder if command == "replay" else folder / "program.yaml")
    assert result.returncode == EXIT_BAD_INPUT, result.stderr
    [line] = result.stderr.splitlines()
    assert "kernel.target: foreign:attention would be imported" in line
    assert "--allow-function foreign:attention" in line


def test_allowing_another_function_allows_that_one_alone(scratch: Path, attnfuzz: Run) -> None:
    folder = record(scratch / "corpus")
    result = attnfuzz("replay", folder, "--allow-function", "foreign:other")
    assert result.returncode == EXIT_BAD_INPUT
    assert "--allow-function foreign:attention" in result.stderr


@pytest.mark.slow
def test_an_allowed_function_is_imported_and_called(scratch: Path, attnfuzz: Run) -> None:
    folder, canary = record(scratch / "corpus"), scratch / "imported"
    (scratch / "foreign.py").write_text(MODULE.format(canary=str(canary)))
    loads = scratch / "loads.py"
    loads.write_text(f"import sys\nsys.path.insert(0, {str(scratch)!r})\n")
    refused = attnfuzz("replay", folder, "--preload", loads)
    assert refused.returncode == EXIT_BAD_INPUT and not canary.exists()
    allowed = "--allow-function", "foreign:attention"
    replayed = attnfuzz("replay", folder, "--preload", loads, *allowed)
    assert replayed.returncode == EXIT_OK, replayed.stdout + replayed.stderr
    assert canary.exists()
    ran = attnfuzz("run", folder / "program.yaml", "--preload", loads, *allowed)
    assert ran.returncode == EXIT_CHANGED, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "left",
    [
        Report(0, failures=[(FOREIGN, Outcome(status="failed", failure=FAILURE))]),
        Report(0, stopped=(FOREIGN,)),
        Report(0, kept=(Kept(FOREIGN, ("a kernel",)),)),
    ],
    ids=["finding", "stopped", "kept"],
)
def test_a_resumed_campaign_calls_its_configurations_functions_alone(
    tmp_path: Path, left: Report
) -> None:
    with Store(tmp_path) as store:
        store.record_shard(left)
        with pytest.raises(CampaignError, match=r"kernel\.target: expected one of .*, got foreign"):
            check_functions(CampaignConfig(minutes=1), store, tmp_path)
        named = CampaignConfig(minutes=1, functions=(UserFunction(target="foreign:attention"),))
        check_functions(named, store, tmp_path)


def test_the_text_of_such_a_program_can_be_had_without(scratch: Path, attnfuzz: Run) -> None:
    path = scratch / "program.yaml"
    path.write_text(dump_program(FOREIGN))
    assert "from foreign import attention" in attnfuzz("render", path).stdout
