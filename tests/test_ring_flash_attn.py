"""The ring_flash_attn package as a kernel: how it is written, what is drawn and what is no program,
and where `make kernels` has made its toolchain, the package itself over processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.worker import Executor
from attnfuzz.generators.kernels.specs import RingFlashAttn
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Phase
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Mesh,
    Program,
    Shape,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from tests.support.executors import executor_with
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels

HALF = Input(dtype="float16")
SHAPE = Shape(batch=2, q_heads=4, kv_heads=2, q_len=24, kv_len=24, head_dim=16)
PACKED = replace(SHAPE, batch=1)
TWO = Mesh(world_size=2, ranks="processes")
WRONG = Failure(
    kind=FailureKind.WRONG_RESULT,
    phase=Phase.CHECK,
    diffs=(Diff(output="out", call=0, what="whole", expected="", actual="", error=1, budget=0.1),),
)
GOLDEN = Path(__file__).parent / "golden" / "systems"


def ring(shape: Shape = SHAPE, mesh: Mesh | None = TWO, **spec: Any) -> Program:
    return Program(kernel=RingFlashAttn(**spec), shape=shape, q=HALF, k=HALF, v=HALF, mesh=mesh)


def trained(program: Program) -> Program:
    return replace(program, training=Training())


WRITTEN = {
    "ring-flash-attn": trained(ring(causal=True, scale=0.3)),
    "ring-flash-attn-zigzag": ring(ring="zigzag", causal=True),
    "ring-flash-attn-llama3": ring(PACKED, ring="llama3", causal=True, sequences=3),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_golden(name: str) -> None:
    assert problems(WRITTEN[name]) == []
    text, file = source(WRITTEN[name]), GOLDEN / f"{name}.py"
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("key", "program"),
    [
        ("mesh", ring(mesh=None)),
        ("mesh", ring(mesh=replace(TWO, ranks="simulated"))),
        ("mask", replace(ring(), mask=masks.Causal())),
        ("kernel.causal", ring(ring="striped")),
        ("q.dtype", replace(ring(), q=Input())),
        ("shape.q_len", ring(mesh=replace(TWO, world_size=5))),
        ("shape.q_len", ring(replace(SHAPE, kv_len=48))),
        ("shape.batch", ring(ring="llama3")),
        ("kernel.sequences", ring(sequences=2)),
        ("kernel.sequences", ring(PACKED, ring="llama3", sequences=8)),
        ("kernel.heads_k_stride", ring(PACKED, ring="llama3", heads_k_stride=3)),
        (
            "calls",
            replace(ring(PACKED, ring="llama3"), calls=(Call(batch=1, q_len=8, kv_len=8),)),
        ),
    ],
)
def test_what_is_no_program(key: str, program: Program) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_everything_is_drawn_valid_survives_yaml_and_shrinks(tmp_path: Path) -> None:
    programs = [p for seed in range(4) for p in generate(seed, 40, profile="ring_flash_attn")]
    for i, p in enumerate(programs):
        assert problems(p) == []
        assert load_program(dump_program(p)) == p
        (tmp_path / f"{i}.py").write_text(repro(p, WRONG))
    kernels = [p.kernel for p in programs]
    for name, count in {"ring": 4, "causal": 2, "sequences": 4, "heads_k_stride": 3}.items():
        assert len({getattr(kernel, name) for kernel in kernels}) >= count, name
    spread = next(p for p in programs if p.mesh is not None and p.mesh.world_size > 2)
    assert any(c.mesh == TWO for c in candidates(spread))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "-q"]
    command += ["--select", "E4,E7,E9,F", "--ignore", "E402", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""


@pytest.fixture(scope="module")
def real() -> Iterator[Executor]:
    with executor_with(TOOLCHAIN) as executor:
        yield executor


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(
    "program",
    [
        trained(ring()),
        trained(ring(causal=True)),
        trained(ring(ring="zigzag", causal=True)),
        trained(ring(ring="striped", causal=True)),
        ring(PACKED, ring="llama3", causal=True, sequences=3),
        ring(PACKED, ring="llama3", sequences=2, heads_k_stride=2),
    ],
    ids=["ring", "causal", "zigzag", "striped", "llama3", "llama3-all-heads"],
)
def test_the_package_itself_passes(program: Program, real: Executor) -> None:
    outcome = real.run_programs([program])[0]
    assert outcome.status == "passed", outcome


@pytest.mark.slow
@needs_kernels
def test_a_ring_that_is_compiled_is_refused(real: Executor) -> None:
    outcome = real.run_programs([replace(ring(), compile=Compile(backend="aot_eager"))])[0]
    assert outcome.status == "rejected", outcome
