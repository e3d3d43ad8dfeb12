"""Reproductions: short, trimmed to the failure, and failing exactly where it shows."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten
from attnfuzz.generators.model import masks, scores
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase, Raised
from attnfuzz.generators.model.program import Call, Compile, Input, Program, Surround, Training
from attnfuzz.generators.render.repro import repro, title
from attnfuzz.generators.strategies.shards import generate

FLEX = Program(
    kernel=Flex(block_mask=BlockMaskSpec()), mask=masks.Documents(),
    compile=Compile(backend="eager"),
)  # fmt: skip
PLAIN = Program(compile=Compile(backend="eager"))
RAISED = Raised(type="torch._inductor.exc.CppCompileError", message='error: "x" \\ y\nmore')


def difference(what: Any = "value", output: str = "out", **rest: Any) -> Diff:
    return Diff(output=output, what=what, expected="at most 1", actual="2", **rest)


def failure(kind: FailureKind, *diffs: Diff, layer: Layer | None = Layer.DYNAMO) -> Failure:
    return Failure(kind=kind, phase=Phase.CHECK, layer=layer, diffs=diffs)


def raised(phase: Phase = Phase.COMPILE) -> Failure:
    return Failure(kind=FailureKind.COMPILE_ERROR, phase=phase, layer=Layer.INDUCTOR, raised=RAISED)


WRONG = failure(FailureKind.WRONG_RESULT, difference(error=0.5, budget=1e-3))
CASES = {
    "wrong-flex": (FLEX, WRONG),
    "wrong-gradient": (
        replace(PLAIN, training=Training(wrt=("q",))),
        failure(FailureKind.WRONG_RESULT, difference(output="dq", error=0.5, budget=1e-3)),
    ),
    "wrong-in-layers": (replace(PLAIN, surround=Surround(layers=2)), WRONG),
    "wrong-in-second-call": (
        replace(PLAIN, calls=(Call(batch=2, q_len=4, kv_len=8),)),
        failure(FailureKind.WRONG_RESULT, difference(error=0.5, budget=1e-3, call=1)),
    ),
    "nonfinite": (PLAIN, failure(FailureKind.NONFINITE, difference())),
    "nonfinite-by-hand": (
        Program(kernel=Handwritten(), mask=masks.Causal(offset=-1)),
        failure(FailureKind.NONFINITE, difference(), layer=Layer.EAGER),
    ),
    "strides": (PLAIN, failure(FailureKind.METADATA_MISMATCH, difference("stride"))),
    "aliases": (PLAIN, failure(FailureKind.METADATA_MISMATCH, difference("aliases"))),
    "shape": (
        Program(), failure(FailureKind.METADATA_MISMATCH, difference("shape"), layer=Layer.EAGER)
    ),
    "bits": (
        replace(PLAIN, grad_mode="no_grad"), failure(FailureKind.NONDETERMINISM, difference("bits"))
    ),
    "mutation": (PLAIN, failure(FailureKind.MUTATION, difference("storage", "k"))),
    "mutation-of-strides": (PLAIN, failure(FailureKind.MUTATION, difference("stride", "k"))),
    "mutation-of-state": (
        PLAIN, failure(FailureKind.MUTATION, difference("rng_state", "global state"))
    ),
    "recompiles": (
        PLAIN, failure(FailureKind.RECOMPILE_LIMIT, difference("compilations", "0:attention"))
    ),
    "unfused": (
        FLEX, failure(FailureKind.GRAPH_BREAK, difference("execution", "flex_attention"))
    ),
    "exception": (FLEX, raised()),
    "exception-in-backward": (replace(PLAIN, training=Training()), raised(Phase.BACKWARD)),
    "exception-in-inputs": (FLEX, raised(Phase.BUILD)),
    "crash": (PLAIN, Failure(kind=FailureKind.CRASH, phase=Phase.FORWARD, signal="SIGSEGV")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_is_short_and_says_what_it_is(name: str) -> None:
    program, found = CASES[name]
    text = repro(program, found)
    assert len(text.splitlines()) <= 40
    title = ast.get_docstring(ast.parse(text))
    assert title is not None and title.startswith(found.kind.value)


def test_has_no_unused_or_undefined_names(tmp_path: Path) -> None:
    for name, (program, found) in CASES.items():
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(repro(program, found))
    for i, program in enumerate(generate(13, 100)):
        (tmp_path / f"wrong_{i}.py").write_text(repro(program, WRONG))
        (tmp_path / f"raised_{i}.py").write_text(repro(program, raised()))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "-q"]
    command += ["--select", "E4,E7,E9,F", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""


def test_an_exception_needs_no_reference() -> None:
    text = repro(*CASES["exception"])
    assert "reference" not in text and "def run" not in text


def test_only_calls_up_to_the_failing_one() -> None:
    calls = tuple(Call(batch=1, q_len=n, kv_len=n) for n in (2, 3, 4))
    found = failure(FailureKind.WRONG_RESULT, difference(error=0.5, budget=1e-3, call=1))
    assert "[(1, 16, 16), (1, 2, 2)]" in repro(replace(PLAIN, calls=calls), found)


RUN_ALL = """
import os, runpy, sys, traceback
import torch, torch._dynamo, torch.nn.attention.flex_attention
for path in sys.argv[1:]:
    if not (child := os.fork()):
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(path, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def exit_codes(texts: dict[str, str], folder: Path) -> dict[str, int]:
    """How each script ends, run by name in a process of its own (forked once torch is there)."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-c", RUN_ALL, *texts]
    lines = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout.splitlines()
    return {name: int(code) for name, code in (line.rsplit(" ", 1) for line in lines)}


@pytest.mark.slow
def test_passes_where_nothing_is_wrong(tmp_path: Path) -> None:
    codes = exit_codes({name: repro(*case) for name, case in CASES.items()}, tmp_path)
    assert codes == dict.fromkeys(CASES, 0)


FLEX_CALL, SDPA_CALL = "flex_attention(q, k, v", "F.scaled_dot_product_attention(q, k, v"
BREAKS = {
    "wrong-flex": (f"return {FLEX_CALL}", f"return 1.01 * {FLEX_CALL}"),
    "wrong-gradient": (f"return {SDPA_CALL}", f"return 1.01 * {SDPA_CALL}"),
    "wrong-in-second-call": (f"return {SDPA_CALL}", f"return 1.01 * {SDPA_CALL}"),
    "nonfinite": (f"return {SDPA_CALL}", f'return float("nan") * {SDPA_CALL}'),
    "mutation": (f"return {SDPA_CALL}", "return F.scaled_dot_product_attention(q, k.zero_(), v"),
    "bits": (f"return {SDPA_CALL}", f"return torch.rand(()) + {SDPA_CALL}"),
    "shape": (f"return {SDPA_CALL})", f"return {SDPA_CALL})[0]"),
}


@pytest.mark.slow
def test_fails_where_something_is_wrong(tmp_path: Path) -> None:
    texts = {}
    for name, (right, wrong) in BREAKS.items():
        text = repro(*CASES[name])
        assert right in text
        texts[name] = text.replace(right, wrong)
    assert exit_codes(texts, tmp_path) == dict.fromkeys(BREAKS, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nonfinite", "nonfinite-by-hand"])
def test_what_is_read_by_mistake_need_not_be_nan(tmp_path: Path, name: str) -> None:
    text = repro(*CASES[name], by_value=True)
    assert len(text.splitlines()) <= 40
    call = next(line for line in text.splitlines() if line.strip().startswith("return "))
    what = call.partition("return ")[2]
    texts = {"right": text}
    for word, factor in (("nan", 'float("nan")'), ("wrong", "2.0")):
        texts[word] = text.replace(call, call.replace(what, f"{factor} * {what}"), 1)
    assert exit_codes(texts, tmp_path) == {"right": 0, "nan": 1, "wrong": 1}


def test_a_wrong_result_of_a_first_call_needs_no_backward_pass() -> None:
    trained = replace(PLAIN, training=Training())
    again = replace(trained, calls=(Call(batch=2, q_len=4, kv_len=8),))
    assert "autograd" not in repro(trained, WRONG)
    assert "requires_grad_()" in repro(trained, WRONG)
    later = failure(FailureKind.WRONG_RESULT, difference(error=0.5, budget=1e-3, call=1))
    assert "torch.autograd.grad(" in repro(again, later)


def test_low_precision_inputs_are_compared_in_float64() -> None:
    low = Input(dtype="bfloat16")
    text = repro(replace(PLAIN, q=low, k=low, v=low), WRONG)
    assert "q, k, v = (t.double() for t in (q, k, v))" in text


def test_a_title_names_no_folder() -> None:
    raised = Raised(type="RuntimeError", message="operator(), /tmp/run1/r2/cabc.main.cpp:10, bad")
    failure = Failure(kind=FailureKind.RUNTIME_ERROR, phase=Phase.FORWARD, raised=raised)
    assert title(failure) == "runtime_error: RuntimeError: bad"


def test_a_title_is_cut_between_words_and_names_the_error_within() -> None:
    message = (
        "out of resource: shared memory, Required: 102400, Hardware limit: 101376. " + "x" * 99
    )
    tiles = Raised(type="triton.runtime.errors.OutOfResources", message=message)
    found = Failure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.COMPILE, raised=tiles)
    assert "Required: 102400" in title(found).replace("\n", " ")
    assert all(len(line) <= 92 for line in title(found).splitlines())
    wrapped = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node: "
        "call_function aten.index(*(FakeTensor(..., size=(2, 1)),)): got RuntimeError('*bdim < "
        'tensor.dim() INTERNAL ASSERT FAILED at "/a/b.cpp":27, please report a bug. \')\n  Hint: no'
    )
    fake = replace(tiles, type="torch._dynamo.exc.TorchRuntimeError", message=wrapped)
    assert "INTERNAL ASSERT FAILED" in title(replace(found, raised=fake))


def test_a_failure_in_the_inputs_draws_nothing_else() -> None:
    text = repro(*CASES["exception-in-inputs"])
    assert "q = " in text  # the documents are drawn after it
    causal = replace(FLEX, mask=masks.Causal())
    text = repro(causal, raised(Phase.BUILD))
    assert "create_block_mask(" in text and "randn" not in text and "manual_seed" not in text


def test_a_mask_that_is_kept_for_calls_of_one_shape_is_made_where_inputs_fail() -> None:
    call = Call(batch=1, q_len=16, kv_len=16, fresh_mods=False)
    program = replace(FLEX, mask=masks.Causal(), calls=(replace(call, kv_len=8), call, call))
    script = repro(program, raised(Phase.BUILD))
    assert "def block_mask_for(B, Lq, Lkv)" in script
    assert "    block_mask = block_mask_for(B, Lq, Lkv)" in script.partition("\nfor B, ")[2]
    ast.parse(script)


def test_gradients_are_asked_for_as_plainly_as_they_can_be() -> None:
    trained = replace(PLAIN, training=Training())
    once = repro(trained, raised(Phase.BACKWARD))
    assert "Generator" not in once and "materialize_grads" not in once
    wrong = failure(FailureKind.WRONG_RESULT, difference(output="dq", error=0.5, budget=1e-3))
    assert "Generator" in repro(trained, wrong)
    score = scores.FloatCall(function="tanh", inner=scores.Score())
    modified = replace(trained, kernel=Flex(), score_mod=score)
    assert "materialize_grads" not in repro(modified, raised(Phase.BACKWARD))
    ignored = replace(modified, score_mod=scores.FloatConst(value=1.0))
    assert "materialize_grads" in repro(ignored, raised(Phase.BACKWARD))
    state = failure(FailureKind.MUTATION, difference("rng_state", "global state"))
    assert "Generator" in repro(trained, state)  # what it draws itself is no change


def test_a_script_says_where_it_is_to_run_and_what_ran_first() -> None:
    text = repro(PLAIN, raised(), where="For a card.", preload={"broken.py": '"""No."""\nx = 1\n'})
    told = ast.get_docstring(ast.parse(text))
    assert told is not None and told.endswith("\n\nFor a card.")
    assert '\ndef broken():\n    """No."""\n    x = 1\n\n\nbroken()\n\nimport torch\n' in text
