"""What the sandbox knows of a rendered program: its arguments have names, however its function is
decorated. Gradients are told by them, and no strides of gradients are promised."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnfuzz.actors.child.program_module import ProgramModule
from attnfuzz.actors.worker import Executor
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.program import Compile, Program, Shape, Surround, Training
from attnfuzz.generators.render.module import source

REGION = Surround(region=True)
SURROUNDED = [
    Surround(), REGION, Surround(region=True, layers=2), Surround(checkpoint="full"),
    Surround(integration="custom_op"), Surround(integration="disable"),
]  # fmt: skip


@pytest.mark.parametrize("surround", SURROUNDED, ids=repr)
def test_arguments_have_their_names(surround: Surround, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(source(Program(surround=surround, compile=Compile())))
    assert ProgramModule(path).argument_names(3) == ["q", "k", "v"]


@pytest.mark.slow
def test_strides_of_gradients_are_not_promised_in_a_region(executor: Executor) -> None:
    """Inductor's attention fusion gives dk other strides."""
    program = Program(
        kernel=Handwritten(), shape=Shape(q_heads=2, kv_heads=2), surround=REGION,
        compile=Compile(), training=Training(),
    )  # fmt: skip
    [outcome] = executor.run_programs([program])
    assert outcome.status == "passed", outcome
