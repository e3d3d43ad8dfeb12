"""A worker's executor with a toolchain of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.worker import Executor, WorkerConfig


@contextmanager
def executor_with(toolchain: Path) -> Iterator[Executor]:
    """Runs programs on the CPU with the torch and the packages of `toolchain`."""
    with Scratch.create() as scratch:
        config = WorkerConfig(scratch=str(scratch.root), toolchain=str(toolchain))
        with Executor(config) as executor:
            yield executor
