"""Every row of the misbehaviour table, in a real sandbox: what it is called, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import Scratch
from benchmarks.misbehaviours import MISBEHAVIOURS, Misbehaviour
from benchmarks.reliability import LIMITS, run_row

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Sandbox, Path]]:
    with Scratch.create() as scratch, Sandbox(scratch=scratch.root, limits=LIMITS) as sandbox:
        yield sandbox, scratch.root


@pytest.mark.parametrize("row", MISBEHAVIOURS, ids=lambda row: row.name.replace(" ", "-"))
def test_whatever_a_program_does(place: tuple[Sandbox, Path], row: Misbehaviour) -> None:
    result = run_row(*place, row, times=1)
    assert result.holds, result
