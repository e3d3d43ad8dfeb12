"""A campaign from its configuration to its end: what must hold before it begins, and all that it
needs brought up and taken down again."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.availability import targets
from attnfuzz.actors.targets.registry import DEFAULT
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.corpus.known_issues import load_known_issues
from attnfuzz.corpus.store.opening import LOCK
from attnfuzz.corpus.store.store import DATABASE, Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.controller import Campaign, CampaignError, CampaignResult, disk_errors
from attnfuzz.fuzz.campaign.known import load_known
from attnfuzz.fuzz.environment import (
    check_interpreter,
    check_packages,
    toolchain_differences,
)
from attnfuzz.fuzz.pool.pool import Pool, run_all
from attnfuzz.fuzz.pool.tasks import SetupTask, TaskFailed, WorkerDied
from attnfuzz.fuzz.report.live import Watcher
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.outcome import TARGET, Outcome
from attnfuzz.generators.reading.files import regular_or_missing
from attnfuzz.generators.reading.safe_yaml import short
from attnfuzz.generators.strategies.swarm import PROFILES


def launch(
    config: CampaignConfig,
    directory: Path,
    on_snapshot: Watcher = lambda snapshot: None,
    where: str = "the configuration",
) -> CampaignResult:
    """Begin the campaign in `directory`, or go on with the one that is there, and run it.

    Brings up everything it needs and takes it all down again; Ray even for one worker, since a
    task in this process could not be abandoned. `where` names the configuration in errors. One that
    cannot begin leaves nothing behind. Raises CampaignError, StoreError, SandboxError,
    ScratchError, KnownIssueError, CaseError or UserError, each one sentence.
    """
    check_before(config, where)
    from attnfuzz.fuzz.pool.ray_pool import RayPool  # Ray takes a second to import

    with contextlib.ExitStack() as stack:
        made = stack.enter_context(claim(directory))
        store = stack.enter_context(Store(directory))
        check_same(config, store, directory)
        check_functions(config, store, directory)
        scratch = stack.enter_context(Scratch.create())
        pool = RayPool(worker_config(config, scratch.root), config.workers)
        stack.enter_context(contextlib.closing(pool))
        stack.enter_context(disk_errors(directory))
        check_toolchain(pool.environment(), config, store, directory)
        check_profiles(config, pool, where)
        check_setup(config, pool, where)
        store.begin(config.seed, config.model_dump(mode="json"), pool.environment())
        made.begun = True
        campaign = Campaign(config, directory, pool, store, on_snapshot, scratch=scratch.root)
        return campaign.run()


def worker_config(config: CampaignConfig, scratch: Path) -> WorkerConfig:
    """What a worker of the campaign is."""
    return WorkerConfig(
        scratch=str(scratch),
        toolchain=config.python,
        targets=tuple(config.targets),
        preload=tuple(str(path) for path in config.preload),
        per_device=config.workers_per_device,
        limits=config.limits,
        deadlines=config.deadlines,
    )


def check_before(config: CampaignConfig, where: str) -> None:
    """What can be known before anything is started: the toolchain, the targets, known issues and
    the corpora. Raises what `launch` raises."""
    load_known_issues(config.known_issues)
    load_known(config)
    if config.toolchain is not None:
        check_interpreter(config.python, f"{where}: toolchain")
    check_targets(config, where)


def check_targets(config: CampaignConfig, where: str) -> None:
    """Raises CampaignError where the toolchain cannot serve one of the campaign's targets; that of
    the CPU shows when its sandbox starts."""
    if set(config.targets) == {DEFAULT}:
        return
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


def check_same(config: CampaignConfig, store: Store, directory: Path) -> None:
    """Raises CampaignError when the campaign that is there draws other programs than `config`."""
    there = store.campaign()
    if there is None:
        return
    now = config.model_dump(mode="json")
    for key in ("seed", "shard_size", "profiles", "functions", "targets"):
        if key in there.config and there.config[key] != now[key]:
            begun, wanted = short(there.config[key]), short(now[key])
            raise CampaignError(
                f"{directory}: {key}: the campaign there was begun with {begun}, "
                f"not {wanted}; its programs would change."
            )
    for row in store.pending():
        if row.target not in config.targets:
            raise CampaignError(
                f"{store.path}: failures: row {row.number}: target: expected one of "
                f"{', '.join(config.targets)}, got {short(row.target)}."
            )


def check_functions(config: CampaignConfig, store: Store, directory: Path) -> None:
    """Raises CampaignError where a finding that is left to look into calls a function that `config`
    does not name: what lies in a directory is data, and nothing in it is imported."""
    ours = {function.target for function in config.functions}
    for row in store.pending():
        for program in (row.program, row.best):
            target = plugin_of(program).imports(program.kernel) if program is not None else None
            if target is not None and target not in ours:
                raise CampaignError(
                    f"{directory}: program {row.program_id}: kernel.target: expected one of the "
                    f"configuration's functions, got {target}."
                )


def check_toolchain(
    now: Mapping[str, str], config: CampaignConfig, store: Store, directory: Path
) -> None:
    """Raises CampaignError when the campaign that is there ran in another toolchain than that whose
    environment is `now`: its failures would be told of a torch that never showed them."""
    there = store.campaign()
    differ = toolchain_differences(there.versions, now) if there else {}
    if differ:
        key, (then, here) = next(iter(differ.items()))
        raise CampaignError(
            f"{directory}: {key}: the campaign there ran with {then}, and {config.python} has "
            f"{here}; resume it with that toolchain, or begin another with another --dir."
        )


SIDES = ("", "-journal", "-wal", "-shm")
"""Ends of the names of SQLite's files."""


@dataclass
class Claim:
    """What a launch has made, `files` and `folders` (innermost first), before its campaign has
    `begun`."""

    files: list[Path]
    folders: list[Path]
    begun: bool = False

    def take_back(self) -> None:
        """Removes it, where the campaign has not begun."""
        if self.begun:
            return
        with contextlib.suppress(OSError):  # somebody else's things are in there by now
            for file in self.files:
                file.unlink(missing_ok=True)
            for folder in self.folders:
                folder.rmdir()


def _take_lock(lock: IO[str], directory: Path) -> None:
    for left in reversed(range(3)):  # who reads there looks at the lock for an instant
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not left:
                raise CampaignError(f"{directory}: another campaign is running there.") from error
            time.sleep(0.05)


@contextlib.contextmanager
def claim(directory: Path) -> Iterator[Claim]:
    """Holds `directory`, made where it is missing, for one campaign at a time. Unless that has
    begun in the end, nothing is left that was not there before."""
    made = Claim([], [])
    try:
        made.folders += [one for one in (directory, *directory.parents) if not one.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        regular_or_missing(directory / LOCK)
        new = not (directory / LOCK).exists()
        lock = (directory / LOCK).open("w")
    except OSError as error:
        made.take_back()
        raise CampaignError(f"{directory}: cannot write there: {error.strerror}.") from error
    with lock:
        _take_lock(lock, directory)
        database = [directory / f"{DATABASE}{end}" for end in SIDES]
        made.files += [file for file in database if not file.exists()]
        made.files += [directory / LOCK] if new else []
        try:
            yield made
        finally:
            made.take_back()
