"""The flash_attn package as a kernel: its renderings against a stand-in of its documentation, and
where `make kernels` has made its toolchain, the package itself in a sandbox."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attnfuzz.actors.worker import Executor
from attnfuzz.fuzz.environment import check_packages
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.kernels.flash_attn.plugin import ON_CPU
from attnfuzz.generators.kernels.flash_attn.spec import KVCache
from attnfuzz.generators.kernels.specs import FlashAttn
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.outcome import FailureKind, Layer
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Layout,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.shards import generate
from tests.support.executors import executor_with
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels
from tests.support.rendered import calls_of

HERE = Path(__file__).parent
HALF = Input(dtype="float16")
SHAPE = Shape(batch=2, q_heads=4, kv_heads=2, q_len=5, kv_len=7, head_dim=8)
BASE = Program(kernel=FlashAttn(), shape=SHAPE, q=HALF, k=HALF, v=HALF)
TRAINED = Training(wrt=("q", "k", "v"))


def flash(shape: Shape = SHAPE, **spec: Any) -> Program:
    return replace(BASE, shape=shape, kernel=FlashAttn(**spec))


SQUARE = replace(SHAPE, q_heads=2, q_len=7)
VARLEN = replace(SHAPE, batch=1, q_len=9, kv_len=14)
LONGER = replace(SHAPE, q_len=9)
PROGRAMS = {
    "plain": flash(),
    "causal": flash(causal=True, scale=0.3),
    "causal-more-queries-than-keys": flash(LONGER, causal=True),
    "window": flash(window=(2, 1), softcap=2.0),
    "window-left": flash(window=(0, -1)),
    "window-right": flash(window=(-1, 1), causal=True),
    "alibi": flash(alibi="heads"),
    "alibi-batch": flash(alibi="batch", causal=True),
    "kvpacked": flash(function="kvpacked", causal=True),
    "qkvpacked": flash(SQUARE, function="qkvpacked", causal=True, window=(3, 3)),
    "varlen": flash(VARLEN, function="varlen", sequences=3),
    "varlen-causal": flash(VARLEN, function="varlen", sequences=4, causal=True, alibi="heads"),
    "varlen-window": flash(VARLEN, function="varlen", sequences=2, window=(1, 2)),
    "varlen-calls": replace(
        flash(VARLEN, function="varlen", sequences=2, causal=True),
        calls=(Call(batch=1, q_len=2, kv_len=3), Call(batch=1, q_len=8, kv_len=8)),
    ),
    "kvcache": flash(function="kvcache", causal=True),
    "kvcache-append": flash(function="kvcache", causal=True, cache=KVCache(append=2)),
    "kvcache-ragged": flash(function="kvcache", window=(4, 0), cache=KVCache(ragged=True)),
    "kvcache-paged": flash(
        replace(SHAPE, kv_len=512), function="kvcache", cache=KVCache(page_size=256)
    ),
    "residual": replace(flash(causal=True), surround=Surround(epilogue="residual")),
    "module": replace(
        flash(SQUARE, causal=True, deterministic=True),
        surround=Surround(projections=True, rope=True),
        training=TRAINED,
    ),
    "trained": replace(flash(causal=True), training=TRAINED),
}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ON_CPU:
        monkeypatch.setenv(name, "")
    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)
    text = (HERE / "support" / "flash_attn_stand_in.py").read_text()
    exec(compile(text, "flash_attn_stand_in.py", "exec"), {})
    yield
    sys.modules.pop("flash_attn", None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rendering_asks_for_what_its_reference_means(name: str, stand_in: None) -> None:
    program = PROGRAMS[name]
    assert not problems(program)
    assert load_program(dump_program(program)) == program
    module: dict = {}
    exec(compile(source(program), name, "exec"), module)
    for call in calls_of(module):
        args = tuple(
            a.detach().double().requires_grad_(a.requires_grad) if a.is_floating_point() else a
            for a in module["inputs"](*call)
        )
        expected = module["run"](module["reference"], args)
        for key, actual in module["run"](module["attention"], args).items():
            torch.testing.assert_close(actual, expected[key], rtol=1e-9, atol=1e-9, msg=key)


def test_generated_programs_are_valid_and_use_every_function() -> None:
    programs = generate(5, 300, profile="flash_attn")
    kernels = [program.kernel for program in programs]
    assert all(isinstance(kernel, FlashAttn) for kernel in kernels)
    assert not [problem for program in programs for problem in problems(program)]
    functions = {kernel.function for kernel in kernels if isinstance(kernel, FlashAttn)}
    assert functions == {"func", "kvpacked", "qkvpacked", "varlen", "kvcache"}


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (replace(BASE, q=Input(dtype="float32")), "q.dtype"),
        (flash(function="qkvpacked"), "shape.q_heads"),
        (flash(function="varlen"), "shape.batch"),
        (flash(function="kvcache", cache=KVCache(append=8)), "shape.kv_len"),
        (flash(function="kvcache", cache=KVCache(page_size=256)), "shape.kv_len"),
        (replace(flash(function="kvcache"), training=TRAINED), "training"),
        (flash(function="kvcache", cache=KVCache(append=1, ragged=True)), "kernel.cache"),
    ],
)
def test_what_the_package_does_not_take_is_no_program(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_a_toolchain_without_the_package_is_one_sentence() -> None:
    with pytest.raises(UserError, match="profiles.flash_attn: the kernel flash_attn needs"):
        check_packages(["sdpa", "flash_attn"], {"python": "3.11.7"}, "profiles.flash_attn")
    check_packages(["flash_attn"], {"flash_attn": "2.8.3"}, "profiles.flash_attn")


@pytest.fixture(scope="module")
def real() -> Iterator[Executor]:
    with executor_with(TOOLCHAIN) as executor:
        yield executor


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize("function", ["func", "kvpacked", "varlen", "kvcache"])
def test_the_package_itself_passes_what_it_can_do(real: Executor, function: str) -> None:
    shape = Shape(batch=1, q_heads=2, kv_heads=2, q_len=16, kv_len=32, head_dim=16)
    program = flash(shape, function=function, causal=True, sequences=1)
    if function != "kvcache":
        bshd = replace(HALF, layout=Layout(order=(0, 2, 1, 3)))
        grad = Training(wrt=("q", "k", "v"), grad_layout="transposed")
        program = replace(program, q=bshd, k=bshd, v=bshd, training=grad)
    outcome = real.run_programs([program])[0]
    assert outcome.status == "passed", outcome


@pytest.mark.slow
@needs_kernels
def test_entries_whose_caches_differ_are_not_told_to_be_interchangeable(real: Executor) -> None:
    shape = Shape(batch=2, q_heads=2, kv_heads=2, q_len=1, kv_len=16, head_dim=16)
    program = flash(shape, function="kvcache", cache=KVCache(ragged=True))
    outcome = real.run_programs([program])[0]
    assert outcome.status == "passed", outcome


@pytest.mark.slow
@needs_kernels
def test_the_package_itself_ignores_a_window(real: Executor) -> None:
    outcome = real.run_programs([flash(window=(1, 0))])[0]
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.layer) == (FailureKind.WRONG_RESULT, Layer.EAGER)


@pytest.mark.slow
@needs_kernels
def test_the_package_itself_does_not_compile(real: Executor) -> None:
    program = replace(flash(), compile=Compile(backend="aot_eager"), training=TRAINED)
    failure = real.run_programs([program])[0].failure
    assert failure is not None and failure.raised is not None
    assert failure.layer is Layer.AOT_EAGER
    assert "expected all tensors_saved_with_vc_check to be Tensors" in failure.raised.message
