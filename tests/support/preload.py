"""Preload files for an executor that is running already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnfuzz.actors.worker import Executor


def preload(executor: Executor, *files: str | Path) -> None:
    """Has the files executed before each program that runs on the first target, and no others."""
    paths = tuple(map(str, files))
    executor._config = replace(executor._config, preload=paths)
    executor._sandbox(executor._first).preload = paths
