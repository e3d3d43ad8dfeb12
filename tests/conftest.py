"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from attnfuzz.actors.sandbox.sandbox import Sandbox
    from attnfuzz.actors.worker import Executor
    from tests.support.command_server import CommandServer

ROOT = Path(__file__).resolve().parent.parent

# How long an example takes says something of the machine only.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def shared_executor() -> Iterator[Executor]:
    """The executor behind `executor`: starting one takes seconds."""
    from attnfuzz.actors.sandbox.scratch import Scratch
    from attnfuzz.actors.worker import Executor, WorkerConfig

    with Scratch.create() as made, Executor(WorkerConfig(scratch=str(made.root))) as opened:
        yield opened


@pytest.fixture
def executor(shared_executor: Executor) -> Iterator[Executor]:
    """Runs programs on the CPU, in a sandbox that all tests share."""
    from tests.support.preload import preload

    yield shared_executor
    preload(shared_executor)


@pytest.fixture
def sandbox(executor: Executor) -> Sandbox:
    """The sandbox of `executor`."""
    return executor._sandbox("cpu")


@pytest.fixture(scope="module")
def limited_sandbox() -> Iterator[Sandbox]:
    """A sandbox of the module's own, for programs that misbehave."""
    from attnfuzz.actors.sandbox.job import Limits
    from attnfuzz.actors.sandbox.sandbox import Sandbox
    from attnfuzz.actors.sandbox.scratch import Scratch

    limits = Limits(memory_mb=2048, file_mb=256, disk_mb=512)
    with Scratch.create() as made, Sandbox(scratch=made.root, limits=limits) as opened:
        yield opened


@pytest.fixture
def undisturbed_sandbox(limited_sandbox: Sandbox) -> Iterator[Sandbox]:
    """`limited_sandbox`, which after each test serves the next program with nothing left of the
    last."""
    from tests.support.outcomes import assert_undisturbed

    yield limited_sandbox
    assert_undisturbed(limited_sandbox)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty folder with a short path (Unix sockets allow 107 bytes), removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="af-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def command_server() -> Iterator[CommandServer]:
    """What `attnfuzz` forks its commands from."""
    from tests.support.command_server import CommandServer

    with CommandServer(ROOT) as server:
        yield server


@pytest.fixture
def attnfuzz(command_server: CommandServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python -m attnfuzz` from the checkout: attnfuzz("generate", "--seed", "7")."""

    def run(
        *arguments: str | Path, cwd: Path = ROOT, timeout: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        words = [str(argument) for argument in arguments]
        whole = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **environment}
        if not any(name.startswith("PYTHON") for name in environment):
            return command_server.run(words, cwd, whole, timeout)
        return subprocess.run(  # the interpreter itself reads them as it starts
            [sys.executable, "-m", "attnfuzz", *words],
            cwd=cwd,
            env=whole,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


def pytest_sessionstart() -> None:
    """What the collection imports stays: to look for garbage in it takes a fourth of its time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on garbage is looked for in what the tests make, and in nothing older."""
    gc.enable()
    gc.freeze()


LONGEST = (
    "test_cli_replay.py", "test_campaign.py", "test_wheel.py", "test_ray_pool.py",
    "test_virtual.py", "test_resume.py", "test_setup.py", "test_bad_input.py", "test_growth.py",
    "test_cli_issue.py", "test_interpreted.py", "test_seeds.py", "test_nodes.py",
    "test_cluster.py", "test_hostile.py",
)  # fmt: skip
"""Files whose tests take longest. They begin first, or one worker ends minutes after the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Has each worker of xdist begin with its share of the longest files, then of the slow ones."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path.name, []).append(item)

    def haste(name: str) -> tuple[int, bool]:
        rank = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        return rank, not any(item.get_closest_marker("slow") for item in files[name])

    order = sorted(files, key=haste)
    shares = [order[place::workers] for place in range(workers)]
    items[:] = [item for share in shares for name in share for item in files[name]]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests did not run, by reason, in the last lines."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("not run")
    for reason, count in reasons.most_common():
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.line(f"{tests} did not run: {reason}")
