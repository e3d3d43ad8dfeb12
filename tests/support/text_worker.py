"""A real worker that also runs sources written by hand, and programs on its first node only."""

from __future__ import annotations

from typing import Any
from unittest import mock

import psutil
import ray

from attnfuzz.actors.remote import WorkerProcess
from attnfuzz.actors.sandbox import reaper
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program


class TextProcess(WorkerProcess):
    """See the module's docstring."""

    def run_text(self, text: str, job: Job) -> Outcome:
        """What becomes of the source; a hang is not tried again."""
        return self._executor._sandbox(job.target).run(text, job, confirm_hang=False)

    def run_here(self, program: Program) -> Outcome:
        """What becomes of the program on one node."""
        sandbox = self._executor._sandbox("cpu")
        with mock.patch.object(sandbox, "_spread", None):
            return self._executor.run_programs([program])[0]


def programs_below(pids: list[int]) -> list[str]:
    """What runs below the zygotes of workers; a reaper's own fork is no program."""
    found = []
    for pid in pids:
        for child in psutil.Process(pid).children():
            if reaper.__file__ not in child.cmdline():
                found += [f"{one.pid} {one.name()}" for one in child.children(recursive=True)]
    return found


TextWorker: Any = ray.remote(num_cpus=1)(TextProcess)
