"""Kernels behind what libraries put around them: the same numbers, eager and compiled."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from attnfuzz.actors.worker import Executor
from attnfuzz.generators.kernels.specs import Handwritten, Sdpa
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.masks import Causal, SlidingWindow
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.model.program import Call, Compile, Program, Shape, Surround, Training
from attnfuzz.generators.model.tree import parts
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.shards import generate
from tests.support.preload import preload
from tests.support.rendered import calls_of

CHOICES = next(part.choices for part in parts(Surround) if part.name == "integration")
STYLES = tuple(style for style in CHOICES if style != "direct")
SHAPE = Shape(batch=2, q_heads=2, kv_heads=2, q_len=5, kv_len=7, head_dim=8, v_head_dim=4)
KERNELS: dict[str, Program] = {
    "sdpa": Program(kernel=Sdpa(scale=0.3), shape=SHAPE, mask=SlidingWindow(window=3)),
    "sdpa-causal": Program(
        kernel=Sdpa(mask_form="is_causal", backend="math"), shape=SHAPE, mask=Causal()
    ),
    "by-hand": Program(kernel=Handwritten(), shape=SHAPE, mask=Causal()),
    "grouped": Program(kernel=Sdpa(enable_gqa=True), shape=replace(SHAPE, q_heads=4)),
    "trained": Program(kernel=Sdpa(), shape=SHAPE, mask=Causal(), training=Training()),
    "a-row-without-keys": Program(
        kernel=Handwritten(fill="finfo_min"),
        shape=SHAPE,
        mask=Causal(offset=-1),
        training=Training(),
    ),
    "trained-subset": Program(kernel=Handwritten(), shape=SHAPE, training=Training(wrt=("k",))),
    "module": Program(
        shape=Shape(q_heads=2, kv_heads=2, q_len=6, kv_len=6, head_dim=8),
        surround=Surround(projections=True, rope=True, epilogue="residual", checkpoint="full"),
        training=Training(),
    ),
    "calls": Program(
        kernel=Sdpa(), shape=SHAPE, mask=Causal(), calls=(Call(batch=1, q_len=3, kv_len=4),)
    ),
}


def behind(program: Program, style: Any, backend: Any = "aot_eager") -> Program:
    compiled = Compile(backend=backend, fullgraph=style != "disable")
    surround = replace(program.surround, integration=style)
    return replace(program, surround=surround, compile=compiled)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", KERNELS)
def test_it_means_the_same_eager_and_compiled(name: str, style: str) -> None:
    program = behind(KERNELS[name], style, "eager")
    assert not problems(program)
    assert load_program(dump_program(program)) == program
    made = sys.modules["program"] = ModuleType("program")  # dynamo looks functions up in theirs
    module = vars(made)
    exec(compile(source(program), f"{name}-{style}", "exec"), module)
    try:
        for call in calls_of(module):
            args = module["inputs"](*call)
            expected = module["run"](module["reference"], args)
            for function in ("attention", "compiled"):
                for key, actual in module["run"](module[function], args).items():
                    torch.testing.assert_close(actual, expected[key], rtol=1e-4, atol=1e-5, msg=key)
    finally:
        torch._dynamo.reset()
        del sys.modules["program"]
        if style.startswith("custom_op"):
            module["kernel"]._lib._destroy()


def test_generated_programs_are_valid_and_use_every_style() -> None:
    programs = generate(5, 200, profile="integrated")
    assert not [problem for program in programs for problem in problems(program)]
    told = Counter(program.surround.integration for program in programs)
    assert set(STYLES) <= set(told) and told["direct"] < 40


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (replace(KERNELS["sdpa"], transform="vmap"), "transform"),
        (replace(KERNELS["grouped"], training=Training()), "shape.q_heads"),
        (
            replace(KERNELS["by-hand"], kernel=Handwritten(out_layout="blhd")),
            "surround.integration",
        ),
    ],
)
def test_what_cannot_be_behind_anything_is_no_program(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(behind(program, "custom_op"))]


def test_a_disabled_kernel_is_no_whole_graph() -> None:
    program = behind(KERNELS["sdpa"], "disable")
    whole = replace(program, compile=Compile(backend="eager", fullgraph=True))
    assert [problem.key for problem in problems(whole)] == ["compile.fullgraph"]


WRONG_FAKE = """
import torch
original = torch.library.CustomOpDef.register_fake


def register_fake(self, function):
    return original(self, lambda q, k, v: function(q, k, v).transpose(1, 2).contiguous().mT)


torch.library.CustomOpDef.register_fake = register_fake
"""


@pytest.mark.slow
def test_the_break_that_a_program_asks_for_is_none_of_torchs(executor: Executor) -> None:
    [outcome] = executor.run_programs([behind(KERNELS["by-hand"], "disable")])
    assert outcome.status == "passed", outcome


@pytest.mark.slow
def test_a_fake_kernel_that_promises_other_strides_is_a_metadata_mismatch(
    executor: Executor, tmp_path: Path
) -> None:
    fault = tmp_path / "wrong_fake.py"
    fault.write_text(WRONG_FAKE)
    program = behind(
        replace(KERNELS["sdpa"], mask=None, shape=replace(SHAPE, kv_len=5)), "custom_op"
    )
    program = replace(program, compile=Compile(), shape=replace(program.shape, v_head_dim=5))
    preload(executor, fault)
    [outcome] = executor.run_programs([program])
    assert outcome.failure is not None, outcome
    assert outcome.failure.kind is FailureKind.METADATA_MISMATCH
