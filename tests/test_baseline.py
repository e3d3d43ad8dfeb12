"""A campaign with a baseline and other toolchains: regressions are told, and come first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.worker import Executor
from attnfuzz.corpus.case import find_cases, read_case
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, Task
from attnfuzz.fuzz.report.findings import rows
from attnfuzz.fuzz.report.pages import page
from attnfuzz.fuzz.report.tables import worst_first
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Program
from tests.support.fake_campaign import CONFIG, run
from tests.support.fake_pool import PASSED, FakePool, judged
from tests.support.fake_toolchains import FIXES, fake_toolchain

OLD, NEW = "/old/python", "/new/python"


class Releases(FakePool):
    """The old release computes attention by hand well; the new one does all that ours does."""

    def answer(self, task: Task) -> Answer:
        if isinstance(task, RunTask) and task.settings.toolchain == OLD:
            return [
                PASSED if one.kernel.kind == "handwritten" else judged(one, fresh=True)
                for one in task.programs
            ]
        return super().answer(task)


def test_what_passes_with_the_baseline_is_a_regression_and_comes_first(tmp_path: Path) -> None:
    run(tmp_path, Releases(), shipped=False, baseline=OLD, toolchains=[OLD, NEW])
    for case in map(read_case, find_cases([tmp_path / "corpus"])):
        regresses = case.program.kernel.kind == "handwritten" and case.failure.raised is None
        expected = {"baseline=-old-python": "passes" if regresses else "fails"}
        assert dict(case.variants) == expected | {"toolchain=-new-python": "fails"}
    with Store(tmp_path, create=False) as store:
        ordered = worst_first(rows(store, tmp_path))
    found = [row.regression for row in ordered]
    assert True in found and False in found and found == sorted(found, reverse=True)
    assert page(tmp_path, ordered[0].id).row.regression
    assert not page(tmp_path, ordered[-1].id).row.regression


def test_names_of_toolchains_are_told_apart() -> None:
    pythons = ["/a/bin/python", "/b/bin/python", "/b/bin/python3"]
    config = CampaignConfig.model_validate({"baseline": "/x/python", "toolchains": pythons})
    assert list(config.others.values()) == ["/x/python", *pythons]
    assert len(config.others) == 4 and next(iter(config.others)).startswith("baseline=")
    assert CONFIG.others == {}


FAILING = Program(kernel=Sdpa(scale=0.0, mask_form="is_causal"), mask=Causal())


@pytest.mark.slow
def test_a_worker_runs_programs_with_another_toolchain(executor: Executor, tmp_path: Path) -> None:
    fixed = str(fake_toolchain(tmp_path / "fixed", FIXES))
    broken = str(fake_toolchain(tmp_path / "broken", "raise SystemExit(3)"))

    def status(toolchain: str | None) -> str:
        (outcome,) = executor.run_programs([FAILING], RunSettings(toolchain=toolchain))
        return outcome.status

    expected = {None: "failed", fixed: "passed", broken: "not_run", sys.executable: "failed"}
    assert {toolchain: status(toolchain) for toolchain in expected} == expected
    assert len(executor._others) == 1
