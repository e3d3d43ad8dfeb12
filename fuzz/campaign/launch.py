"""A campaign from its configuration to its end: what must hold before it begins, and all that it
needs brought up and taken down again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.availability import targets
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.corpus.known_issues import load_known_issues
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.claim import claim
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.controller import Campaign, CampaignResult
from attnfuzz.fuzz.campaign.interruptions import CampaignError, disk_errors
from attnfuzz.fuzz.campaign.known_buckets import load_known
from attnfuzz.fuzz.campaign.resume import check_functions, check_same, check_toolchain
from attnfuzz.fuzz.campaign.workers import check_workers, open_workers
from attnfuzz.fuzz.environment import (
    check_interpreter,
    check_packages,
)
from attnfuzz.fuzz.pool.pool import Pool, run_all
from attnfuzz.fuzz.pool.tasks import SetupTask, TaskFailed, WorkerDied
from attnfuzz.fuzz.reduce.variants import BASELINE
from attnfuzz.fuzz.report.live import Watcher
from attnfuzz.generators.model.outcome import TARGET, Outcome
from attnfuzz.generators.strategies.swarm import PROFILES


def launch(
    config: CampaignConfig,
    directory: Path,
    on_snapshot: Watcher = lambda snapshot: None,
    where: str = "the configuration",
    clock: Callable[[], float] = time.monotonic,
    wait_s: float = 0.0,
) -> CampaignResult:
    """Begin the campaign in `directory`, or go on with the one that is there, and run it.

    Brings up everything it needs and takes it all down again; Ray even for one worker, since a
    task in this process could not be abandoned. `where` names the configuration in errors, `clock`
    gives the seconds that its minutes are measured by. Where another campaign holds the directory,
    its end is waited for `wait_s` seconds. One that cannot begin leaves nothing behind.
    Raises CampaignError, StoreError, SandboxError, ScratchError, KnownIssueError, CaseError or
    UserError, each one sentence.
    """
    check_before(config, where)
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(claim(directory, wait_s))
        store = stack.enter_context(Store(directory))
        store.guard = made.check
        check_same(config, store, directory)
        check_functions(config, store, directory)
        scratch = stack.enter_context(Scratch.create())
        pool = open_workers(config, scratch.root, store)
        stack.enter_context(contextlib.closing(pool))
        stack.enter_context(disk_errors(directory))
        check_toolchain(pool.environment(), config, store, directory)
        check_profiles(config, pool, where)
        check_setup(config, pool, where)
        store.begin(config.seed, config.model_dump(mode="json"), pool.environment())
        made.begun = True
        if config.ray_address is not None:
            from attnfuzz.fuzz.campaign.metrics import Metrics

            told = Metrics(pool.states, lambda: store.totals().cpu)
            on_snapshot = told.beside(on_snapshot)
        campaign = Campaign(
            config, directory, pool, store, on_snapshot, scratch=scratch.root, clock=clock
        )
        return campaign.run()


def check_before(config: CampaignConfig, where: str) -> None:
    """What can be known before anything is started: the toolchain, the targets, known issues and
    the corpora. Raises what `launch` raises."""
    check_workers(config, where)
    load_known_issues(config.known_issues)
    load_known(config)
    if config.toolchain is not None:
        check_interpreter(config.python, f"{where}: toolchain")
    for name, python in config.others.items():
        key = "baseline" if name.startswith(BASELINE) else "toolchains"
        check_interpreter(python, f"{where}: {key}")
    check_targets(config, where)


def check_targets(config: CampaignConfig, where: str) -> None:
    """Raises CampaignError where the toolchain cannot serve one of the campaign's targets; that of
    the CPU shows when its sandbox starts."""
    if set(config.targets) == {DEFAULT} or config.ray_address is not None:
        return  # a worker says what its node has
    for status in targets(config.python):
        if status.name in config.targets and not status.can_run:
            raise CampaignError(f"{where}: targets.{status.name}: {status.reason}.")


def check_profiles(config: CampaignConfig, pool: Pool, where: str) -> None:
    """Raises UserError where a profile draws a kernel whose package the toolchain lacks."""
    for name in (name for name, weight in config.profiles.items() if weight):
        kernels = [kernel for kernel, _ in PROFILES[name].kernels]
        check_packages(kernels, pool.environment(), f"{where}: profiles.{name}", config.preload)


def check_setup(config: CampaignConfig, pool: Pool, where: str) -> None:
    """Raises CampaignError where a preload file raises, or a function of one's own is not to be
    had, on one of the campaign's targets."""
    used = config.functions if config.profiles.get("function") else ()
    if not config.preload and not used:
        return
    names = [None, *(function.target for function in used)]
    setups = [SetupTask(target, name) for target, weight in config.targets.items() if weight
             for name in names]  # fmt: skip
    for place, finished in enumerate(run_all(pool, setups)):
        answer = finished.result
        if isinstance(answer, TaskFailed):
            raise RuntimeError(f"a worker raised: {answer.error}")
        if isinstance(answer, WorkerDied):
            raise CampaignError(f"{where}: preload: the worker dies that loads the files.")
        assert isinstance(answer, list) and isinstance(answer[0], Outcome)
        if answer[0].status != "passed":
            why = answer[0].rejection or "it did not end"
            key = f"functions[{place % len(names) - 1}].target"
            raise CampaignError(f"{where}: {why.replace(TARGET, key, 1)}.")
