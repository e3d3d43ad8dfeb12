"""A program has so much memory, so many files and these CPUs, and no more."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.generators.model.outcome import FailureKind, Phase
from tests.support.outcomes import failing, said
from tests.support.sources import source

JOB = Job()

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def sandbox(undisturbed_sandbox: Sandbox) -> Sandbox:
    return undisturbed_sandbox


def test_memory_is_limited(sandbox: Sandbox) -> None:
    outcome = sandbox.run(source("torch.ones(1 << 32)"), JOB)
    assert failing(outcome) == (FailureKind.OUT_OF_MEMORY, Phase.EAGER)


def test_an_uncaught_bad_alloc_is_out_of_memory(sandbox: Sandbox) -> None:
    body = """
    import os, sys
    sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\\n")
    sys.stderr.flush()
    os.abort()
    """
    outcome = sandbox.run(source(body), JOB)
    assert failing(outcome) == (FailureKind.OUT_OF_MEMORY, Phase.EAGER)
    assert "std::bad_alloc" in said(outcome)


def test_files_are_limited(sandbox: Sandbox) -> None:
    outcome = sandbox.run(source("open('big', 'wb').truncate(1 << 30)"), JOB)
    assert outcome.failure is not None and "File too large" in said(outcome)


def test_all_files_together_are_limited(sandbox: Sandbox) -> None:
    body = (
        "import os, time\n"
        "for number in range(1000):\n"
        "    with open(f'part-{number}', 'wb') as file:\n"
        "        os.posix_fallocate(file.fileno(), 0, 64 << 20)\n"
        "    time.sleep(0.1)"
    )
    outcome = sandbox.run(source(body), JOB)
    assert failing(outcome) == (FailureKind.RUNTIME_ERROR, Phase.EAGER)
    assert said(outcome) == "wrote more than 512 MiB to its folder (limits.disk_mb), and was ended"
    assert outcome.failure is not None and "part-0" in outcome.failure.evidence["files"]


def test_a_program_has_the_cpus_of_its_worker_unless_it_needs_more(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = min(os.sched_getaffinity(0))
    monkeypatch.setattr(sandbox, "_cpus", (own,))
    text = source("import os; raise RuntimeError(str(sorted(os.sched_getaffinity(0))))")
    assert said(sandbox.run(text, JOB)) == str([own])
    everything = str(sorted(os.sched_getaffinity(0)))
    assert said(sandbox.run(text, replace(JOB, ranks=2))) == everything
