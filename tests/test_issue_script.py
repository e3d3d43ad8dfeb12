"""Scripts of issues: `test_fn`, compared as torch's maintainers ask of fuzzers."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.generators.kernels.specs import FlashAttn, Flex, Handwritten
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.outcome import (
    EAGER_REFUSES,
    Diff,
    Failure,
    FailureKind,
    Layer,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Call, Compile, Input, Program, Training
from attnfuzz.generators.render.issue_script import issue_script, ways
from attnfuzz.generators.strategies.shards import generate

COMPILED = Program(kernel=Flex(), compile=Compile(backend="inductor"))
RAISED = Raised(type="torch._inductor.exc.CppCompileError", message='error: "x" \\ y\nmore')


def wrong(output: str = "out", **rest: Any) -> Failure:
    diff = Diff(output=output, what="value", expected="1", actual="2", error=1.0, budget=1e-6)
    layer = rest.pop("layer", Layer.INDUCTOR)
    kind = rest.pop("kind", FailureKind.WRONG_RESULT)
    return Failure(kind=kind, phase=Phase.CHECK, layer=layer, diffs=(diff,), **rest)


def raised() -> Failure:
    return Failure(
        kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=Layer.INDUCTOR, raised=RAISED
    )


def statements(text: str) -> list[str]:
    """The statements of `test_fn`, as they stand."""
    tree = ast.parse(text)
    (function,) = [one for one in tree.body if getattr(one, "name", "") == "test_fn"]
    assert isinstance(function, ast.FunctionDef) and ast.unparse(function.returns or tree) == "bool"
    return [ast.unparse(one) for one in function.body]


def test_compiled_and_eager_are_compared_by_same_with_equal_seeds() -> None:
    lines = statements(issue_script(COMPILED, wrong(), "same").text)
    assert lines[0] == "torch._dynamo.reset()"
    seed, eager, again, actual = lines[-6:-2]
    assert seed == again == "torch.manual_seed(0)"
    assert eager == "eager = attention(q, k, v)" and actual == "actual = compiled(q, k, v)"
    assert lines[-2] == "expected = reference(q.double(), k.double(), v.double())"
    assert lines[-1] == "return same(eager, actual, fp64_ref=expected)"


def test_randomness_falls_back_and_tolerances_are_the_defaults() -> None:
    text = issue_script(COMPILED, wrong(), "same").text
    assert "torch._inductor.config.fallback_random = True" in text
    assert "tol" not in text


def test_it_compiles_where_the_bisector_chooses_the_back_end() -> None:
    for via in ("compile", "in_eager", "in_compiled", "module", "layers"):
        program = replace(COMPILED, compile=Compile(via=via))
        tree = ast.parse(issue_script(program, wrong(), "same").text)
        outside = [one for one in tree.body if getattr(one, "name", "") != "test_fn"]
        assert "torch.compile(" not in "\n".join(map(ast.unparse, outside))


def test_eager_is_compared_with_plain_operations() -> None:
    text = issue_script(Program(), wrong(layer=Layer.EAGER), "same").text
    lines = statements(text)
    assert "plain = reference(q, k, v).to(actual.dtype)" in lines
    assert lines[-1] == "return same(plain, actual, fp64_ref=expected)"
    assert "fallback_random" not in text and "compile" not in text


def test_what_eager_refuses_is_compared_with_plain_operations() -> None:
    refused = wrong(evidence={EAGER_REFUSES: "no"})
    lines = statements(issue_script(COMPILED, refused, "same").text)
    assert lines[-1] == "return same(plain, actual, fp64_ref=expected)"
    assert not any("attention(q" in line for line in lines)


def test_only_what_may_be_finite_is_compared() -> None:
    program = Program(kernel=Handwritten(), mask=masks.Causal(offset=-1))
    lines = statements(issue_script(program, wrong(layer=Layer.EAGER), "same").text)
    assert lines[-1] == "return same(plain[finite], actual[finite], fp64_ref=expected[finite])"


def test_exceptions_are_printed_and_asserted() -> None:
    script = issue_script(COMPILED, raised(), "itself")
    assert "traceback.print_exc()" in script.text
    assert ast.unparse(ast.parse(script.text).body[-1]).endswith(
        "assert test_fn(), 'raised CppCompileError, see above'"
    )


def test_flash_attention_is_judged_as_its_own_tests_do() -> None:
    half = Input(dtype="float16")
    program = Program(kernel=FlashAttn(), q=half, k=half, v=half)
    failure = wrong(layer=Layer.EAGER)
    assert ways(program, failure)[0] == "flash_attn"
    last = statements(issue_script(program, failure, "flash_attn").text)[-1]
    assert last == "return error <= 2 * error_of_torch + floor"


def test_ways_say_what_can_be_compared() -> None:
    assert ways(COMPILED, wrong()) == ("same", "itself")
    assert ways(COMPILED, raised()) == ("itself",)
    crash = Failure(kind=FailureKind.CRASH, phase=Phase.FORWARD, signal="SIGSEGV")
    assert ways(COMPILED, crash) == ("same",)
    unknown = wrong("no_such_output")
    assert ways(COMPILED, unknown) == ("itself",)


def test_what_is_importable_defines_test_fn_and_calls_nothing() -> None:
    script = issue_script(COMPILED, wrong(), "same")
    assert "assert" not in script.importable and "def test_fn" in script.importable


def test_scripts_have_no_unused_or_undefined_names(tmp_path: Path) -> None:
    strides = Diff(output="out", what="stride", expected="1", actual="2")
    found = {
        "wrong": wrong(), "gradient": wrong("dq"), "raised": raised(),
        "strides": Failure(
            kind=FailureKind.METADATA_MISMATCH, phase=Phase.CHECK, layer=Layer.INDUCTOR,
            diffs=(strides,),
        ),
    }  # fmt: skip
    several = replace(COMPILED, calls=(Call(batch=2, q_len=4, kv_len=8),), training=Training())
    programs = [COMPILED, several, *generate(11, 40)]
    for number, program in enumerate(programs):
        for name, failure in found.items():
            for way in ways(program, failure):
                text = issue_script(program, failure, way).text
                (tmp_path / f"p{number}_{name}_{way}.py").write_text(text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "-q"]
    command += ["--select", "E7,E9,F", "--ignore", "F841", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""


@pytest.mark.slow
def test_a_correct_program_passes_by_same(tmp_path: Path) -> None:
    program = replace(COMPILED, compile=Compile(backend="aot_eager"))
    path = tmp_path / "script.py"
    path.write_text(issue_script(program, wrong(layer=Layer.AOT_EAGER), "same").text)
    ran = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
