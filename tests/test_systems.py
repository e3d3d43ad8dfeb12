"""Attention of TorchTitan, yunchang, diffusers and others as kernels: how it is written, what is
drawn and what is no program, and where `make systems` has made its toolchain, the packages
themselves, over processes too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.kernels.specs import (
    AttentionGym,
    Diffusers,
    Torchtitan,
    Torchtune,
    Transformers,
    Yunchang,
)
from attnfuzz.generators.kernels.torchtune.plugin import is_packed
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Phase, Raised
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
from attnfuzz.generators.strategies.shards import generate, stream
from tests.support.executors import executor_with
from tests.support.preload import preload
from tests.support.systems_toolchain import TOOLCHAIN, needs_systems

SHAPE = Shape(batch=2, q_heads=2, kv_heads=2, q_len=24, kv_len=24, head_dim=16)
TWO = Mesh(world_size=2, ranks="processes")
RAISED = Failure(
    kind=FailureKind.RUNTIME_ERROR,
    phase=Phase.EAGER,
    raised=Raised(type="RuntimeError", message="no"),
)
WRONG = Failure(
    kind=FailureKind.WRONG_RESULT,
    phase=Phase.CHECK,
    diffs=(Diff(output="out", call=0, what="whole", expected="", actual="", error=1, budget=0.1),),
)
INCIDENTS = Path(__file__).parent.parent / "benchmarks" / "incidents"
GOLDEN = Path(__file__).parent / "golden" / "systems"
EAGERLY = Compile(backend="aot_eager")
NO_ROOM = "torchtune attention's backward takes more shared memory than the card has"


def titan(mask: masks.Mask | None = None, mesh: Mesh | None = None, **spec: Any) -> Program:
    return Program(kernel=Torchtitan(**spec), shape=SHAPE, mask=mask, mesh=mesh)


def ring(mesh: Mesh | None = TWO, **spec: Any) -> Program:
    return Program(kernel=Yunchang(**spec), shape=SHAPE, mesh=mesh)


def dispatched(mask: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=Diffusers(**spec), shape=SHAPE, mask=mask)


def gym(joined: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=AttentionGym(**spec), shape=SHAPE, mask=joined)


def tune(mask: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=Torchtune(**spec), shape=SHAPE, mask=mask)


OBLONG = gym(mask="natten", canvas=6)
SQUARE = replace(
    gym(mask="natten", canvas=5, score="softcap"), shape=replace(SHAPE, q_len=25, kv_len=25)
)
WRITTEN = {
    "attention-gym-documents": gym(mask="sliding_window", within="documents", score="alibi"),
    "attention-gym-batches": gym(masks.KeyPadding(), mask="global_window", within="batches"),
    "attention-gym-natten": OBLONG,
    "attention-gym-fast": gym(fast=True, block_size=16),
    "torchtune-masked": replace(
        tune(masks.KeyPadding(), pattern="masked"), shape=replace(SHAPE, q_heads=4)
    ),
    "torchtune-packed": tune(sequences=3),
    "torchtitan-sdpa": titan(checkpoint="selective"),
    "torchtitan-flex": titan(
        masks.Natten(), module="flex", pattern="window", documents="bounds", block_size=16
    ),
    "torchtitan-context-parallel": titan(mesh=TWO, context_parallel="headtail"),
    "transformers": Program(kernel=Transformers(padding="left", cache="static"), shape=SHAPE),
    "transformers-flex": Program(
        kernel=Transformers(implementation="flex_attention", pattern="chunked"), shape=SHAPE
    ),
    "yunchang-ring": ring(ring="zigzag", causal=True),
    "yunchang-ulysses": ring(ring="basic", ulysses=2, attn_type="torch_math"),
    "diffusers-causal": dispatched(is_causal=True),
    "diffusers-padding": dispatched(padding=True, backend="flex"),
    "diffusers-mask": dispatched(
        masks.Documents(causal=True), backend="_native_math", mask_form="float"
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_golden(name: str) -> None:
    assert problems(WRITTEN[name]) == []
    text, file = source(WRITTEN[name]), GOLDEN / f"{name}.py"
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("key", "program"),
    [
        ("mask", titan(masks.Causal())),
        ("kernel.pattern", titan(pattern="window")),
        ("kernel.documents", titan(documents="ids")),
        ("kernel.documents", titan(module="flex", documents="bounds", pattern="all")),
        ("mesh", titan(mesh=TWO)),
        ("mesh", titan(context_parallel="plain")),
        ("shape.q_len", titan(mesh=TWO, module="flex", context_parallel="plain")),
        ("kernel.context_parallel", titan(mesh=TWO, module="flex", context_parallel="headtail")),
        ("mask", dispatched(masks.Causal(), is_causal=True)),
        ("mask", dispatched(masks.Causal(), padding=True)),
        ("kernel.padding", dispatched(is_causal=True, padding=True)),
        ("kernel.padding", dispatched(backend="_native_math", padding=True)),
        ("mesh", replace(dispatched(), mesh=TWO)),
        ("kernel.mask", gym(mask="dilated", within="packed")),
        ("kernel.fast", gym(masks.Causal(), fast=True)),
        ("kernel.canvas", gym(mask="natten", canvas=7)),
        ("kernel.window", gym(mask="natten", canvas=2)),
        ("calls", replace(gym(), calls=(Call(batch=1, q_len=8, kv_len=8),))),
        ("mask", tune(pattern="masked")),
        ("mask", tune(masks.Causal())),
        ("shape.kv_len", replace(tune(), shape=replace(SHAPE, kv_len=8))),
        ("mesh", ring(mesh=None)),
        ("kernel.causal", ring(ring="zigzag")),
        ("kernel.ulysses", ring(ulysses=3)),
        ("kernel.attn_type", ring(ring="basic", attn_type="torch_math")),
        ("shape.q_len", ring(mesh=replace(TWO, world_size=5))),
    ],
)
def test_what_is_no_program(key: str, program: Program) -> None:
    assert key in [problem.key for problem in problems(program)]


@pytest.mark.parametrize(
    "profile", ["torchtitan", "yunchang", "diffusers", "attention_gym", "torchtune"]
)
def test_drawn_programs_are_valid_survive_yaml_and_shrink(profile: str) -> None:
    programs = [p for seed in range(4) for p in generate(seed, 40, profile=profile)]
    for p in programs:
        assert problems(p) == []
        assert load_program(dump_program(p)) == p
    if profile not in ("torchtitan", "yunchang"):
        return
    spread = next(p for p in programs if p.mesh is not None and p.mesh.world_size > 2)
    assert any(c.mesh == TWO for c in candidates(spread))


def test_everything_is_drawn() -> None:
    kernels = [p.kernel for seed in range(5) for p in generate(seed, 60, profile="torchtitan")]
    for name, count in {
        "module": 2, "pattern": 4, "documents": 3, "checkpoint": 3, "context_parallel": 3,
    }.items():  # fmt: skip
        assert len({getattr(kernel, name) for kernel in kernels}) == count, name
    rings = [p.kernel for p in generate(5, 80, profile="yunchang")]
    for name, count in {"ring": 4, "attn_type": 2, "causal": 2}.items():
        assert len({getattr(kernel, name) for kernel in rings}) == count, name
    made = [p.kernel for seed in range(3) for p in generate(seed, 60, profile="attention_gym")]
    for name, count in {"mask": 6, "within": 4, "score": 3, "fast": 2}.items():
        assert len({getattr(kernel, name) for kernel in made}) == count, name
    tuned = [p.kernel for p in generate(5, 80, profile="torchtune")]
    for name, count in {"pattern": 4, "sequences": 5}.items():
        assert len({getattr(kernel, name) for kernel in tuned}) == count, name
    given = [p.kernel for p in generate(5, 80, profile="diffusers")]
    for name, count in {"backend": 3, "is_causal": 2, "padding": 2, "mask_form": 2}.items():
        assert len({getattr(kernel, name) for kernel in given}) == count, name


def test_packed_sequences_on_a_card_are_seldom_of_full_precision() -> None:
    place = TARGETS["virtual-sm86"].place
    drawn = list(islice(stream(3, profile="torchtune", shard_size=6, place=place), 300))
    packed = [p.q.dtype for p in drawn if is_packed(p)]
    assert 0 < packed.count("float32") < len(packed) / 16


def test_scripts_are_short_and_say_what_stands_in() -> None:
    parallel = titan(mesh=TWO, context_parallel="headtail")
    assert len(repro(parallel, RAISED).splitlines()) <= 40
    text = repro(ring(), RAISED)
    assert "CPUs do not have this operator" in text
    assert len(text.splitlines()) <= 40


@pytest.mark.parametrize(
    "name", ["torchtitan-flex", "attention-gym-documents", "torchtune-packed", "transformers-flex"]
)
def test_a_script_that_no_number_decides_has_no_mask_that_is_meant(name: str) -> None:
    raised, wrong = repro(WRITTEN[name], RAISED), repro(WRITTEN[name], WRONG)
    assert "seen" in wrong
    assert all(text not in raised for text in ("seen", "\nq_idx = ", "\nkv_idx = "))


def test_scripts_of_drawn_programs_have_no_unused_or_undefined_names(tmp_path: Path) -> None:
    for profile in ("transformers", "torchtitan", "diffusers", "attention_gym", "torchtune"):
        for i, program in enumerate(generate(9, 40, profile=profile)):
            (tmp_path / f"{profile}_{i}_wrong.py").write_text(repro(program, WRONG))
            (tmp_path / f"{profile}_{i}_raised.py").write_text(repro(program, RAISED))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "-q"]
    command += ["--select", "E4,E7,E9,F", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""


@pytest.fixture(scope="module")
def real() -> Iterator[Executor]:
    with executor_with(TOOLCHAIN) as executor:
        yield executor


@pytest.mark.slow
@needs_systems
@pytest.mark.parametrize(
    "program",
    [
        replace(titan(checkpoint="selective"), training=Training(), compile=EAGERLY),
        ring(causal=True),
        ring(ring="zigzag", causal=True),
        ring(ring="strip", causal=True),
        ring(ring="basic", ulysses=2, attn_type="torch_math"),
        replace(dispatched(padding=True), training=Training()),
        dispatched(masks.Documents(causal=True), backend="flex"),
        WRITTEN["attention-gym-documents"],
        WRITTEN["attention-gym-batches"],
        gym(mask="prefix_lm", within="documents", sequences=3),
        gym(within="packed"),
        gym(mask="dilated", window=5),
        SQUARE,
        replace(tune(sequences=3), training=Training(), compile=EAGERLY),
        WRITTEN["torchtune-masked"],
    ],
    ids=[
        "torchtitan",
        "ring",
        "zigzag",
        "strip",
        "ulysses",
        "diffusers",
        "diffusers-flex",
        "gym-documents",
        "gym-batches",
        "gym-prefix",
        "gym-packed",
        "gym-dilated",
        "gym-natten",
        "torchtune-packed",
        "torchtune-masked",
    ],
)
def test_the_package_itself_passes(program: Program, real: Executor) -> None:
    outcome = real.run_programs([program])[0]
    assert outcome.status == "passed", outcome


@pytest.mark.slow
@needs_systems
@pytest.mark.parametrize("what", ["is_causal", "padding"])
def test_back_ends_that_promise_the_same_are_judged_by_it(what: str, real: Executor) -> None:
    """diffusers' flex back-end leaves out what its native one does."""
    spec: dict[str, Any] = {what: True}
    failure = real.run_programs([dispatched(None, backend="flex", **spec)])[0].failure
    assert failure is not None and failure.kind is FailureKind.WRONG_RESULT, failure


@pytest.mark.slow
@needs_systems
def test_a_value_of_another_width_mixes_tensors_in_context_parallel(real: Executor) -> None:
    """The fourth incident's failure, in TorchTitan as it is."""
    program = titan(mesh=TWO, context_parallel="plain")
    program = replace(program, shape=replace(SHAPE, v_head_dim=8))
    failure = real.run_programs([program])[0].failure
    assert failure is not None and failure.kind is FailureKind.TYPE_MIXING, failure


@pytest.mark.slow
@needs_systems
def test_a_mask_in_forward_is_refused_as_it_was(real: Executor) -> None:
    """The first incident, with the fix undone."""
    names = ("torchtitan_mask_in_forward.py", "id_of_nested_function.py")
    preload(real, *(INCIDENTS / name for name in names))
    try:
        # With 24 keys the module's own compilation is wrong on a CPU with AVX2: docs/FINDINGS.md.
        program = replace(titan(module="flex"), shape=replace(SHAPE, q_len=32, kv_len=32))
        failure = real.run_programs([replace(program, compile=Compile(backend="eager"))])[0].failure
    finally:
        preload(real)
    assert failure is not None and failure.kind is FailureKind.COMPILE_ERROR, failure
    assert failure.raised is not None and "call_id" in failure.raised.message


@pytest.mark.slow
@needs_systems
def test_default_tiles_of_a_backward_do_not_fit_a_smaller_card() -> None:
    """The third incident, in torchtune as it is: it compiles flex_attention for packed sequences.
    Neither card is there."""
    fits = replace(tune(), training=Training())
    shape = replace(SHAPE, q_len=128, kv_len=128, head_dim=256)
    half = Input(dtype="bfloat16")
    large = replace(fits, shape=shape, q=half, k=half, v=half)
    small = replace(tune(), shape=replace(SHAPE, head_dim=8))
    with Scratch.create() as scratch:
        config = WorkerConfig(
            scratch=str(scratch.root), toolchain=str(TOOLCHAIN), targets=("virtual-sm86",)
        )
        with Executor(config) as executor:
            first, second, third = executor.run_programs([fits, large, small])
    assert first.status == "passed", first
    assert third.status == "rejected", third
    assert second.failure is not None, second
    assert second.failure.kind is FailureKind.OUT_OF_MEMORY, second
    assert signature(second.failure, large).title == NO_ROOM
