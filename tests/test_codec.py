"""The codec: without loss both ways, and one clear sentence for whatever is not a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.codec import (
    ProgramError,
    dump_program,
    dump_yaml,
    from_data,
    load_program,
    load_yaml_safely,
    outcome_from_data,
    outcome_to_data,
    program_id,
    read_text,
    to_data,
)
from attnfuzz.generators.model.indices import Table
from attnfuzz.generators.model.masks import And, Causal, Not, TableMask
from attnfuzz.generators.model.outcome import (
    Cost,
    Diff,
    Failure,
    FailureKind,
    Layer,
    Outcome,
    Phase,
)
from attnfuzz.generators.model.program import Call, Compile, Input, Layout, Program, Shape, Training
from attnfuzz.generators.model.scores import FloatBinary, FloatConst, Score, Softcap
from attnfuzz.generators.reading.safe_yaml import MAX_BYTES, MAX_DEPTH
from attnfuzz.generators.strategies.programs import programs

RICH = Program(
    seed=7,
    kernel=Flex(
        scale=0.1,
        block_mask=BlockMaskSpec(block_size=(64, 32), batch=True),
        kernel_options={"BLOCK_M": 32, "PRESCALE_QK": True},
    ),
    shape=Shape(batch=2, q_len=33),
    q=Input(layout=Layout(order=(0, 2, 1, 3))),
    mask=And(
        left=Causal(),
        right=Not(inner=TableMask(table=Table(axes=("b", "kv_idx"), dtype="bool", init="coin"))),
    ),
    score_mod=Softcap(inner=FloatBinary(op="+", left=Score(), right=FloatConst(value=1e-5))),
    compile=Compile(),
    calls=(Call(batch=2, q_len=2, kv_len=3),),
    training=Training(wrt=("q",)),
)

RICH_YAML = """\
seed: 7
kernel:
  kind: flex
  scale: 0.1
  block_mask:
    block_size: [64, 32]
    batch: true
  kernel_options:
    BLOCK_M: 32
    PRESCALE_QK: true
shape:
  batch: 2
  q_len: 33
q:
  layout:
    order: [0, 2, 1, 3]
mask:
  kind: and
  left:
    kind: causal
  right:
    kind: not
    inner:
      kind: table
      table:
        axes: [b, kv_idx]
        dtype: bool
        init: coin
score_mod:
  kind: softcap
  inner:
    kind: binary
    op: +
    left:
      kind: score
    right:
      kind: float
      value: 1.0e-05
compile: {}
calls:
- batch: 2
  q_len: 2
  kv_len: 3
training:
  wrt: [q]
"""


@settings(max_examples=200)
@given(programs())
def test_every_program_survives_yaml_and_json(program: Program) -> None:
    assert load_program(dump_program(program)) == program
    assert from_data(json.loads(json.dumps(to_data(program)))) == program


def test_yaml_reads_as_what_is_special() -> None:
    assert dump_program(RICH) == RICH_YAML
    assert dump_program(Program()) == "kernel:\n  kind: sdpa\n"


@given(st.floats(min_value=-1e6, max_value=1e6))
def test_floats_are_exact(value: float) -> None:
    program = Program(
        kernel=Flex(), score_mod=FloatBinary(op="+", left=Score(), right=FloatConst(value=value))
    )
    read = load_program(dump_program(program)).score_mod
    assert repr(read) == repr(program.score_mod)


def test_equal_programs_have_one_id() -> None:
    assert isinstance(RICH.kernel, Flex)
    options = RICH.kernel.kernel_options
    turned = replace(RICH.kernel, kernel_options=dict(reversed(list(options.items()))))
    assert replace(RICH, kernel=turned) == RICH
    assert program_id(replace(RICH, kernel=turned)) == program_id(RICH)
    whole = Program(kernel=Flex(scale=2))
    assert program_id(whole) == program_id(load_program(dump_program(whole)))
    assert program_id(RICH) != program_id(Program())


def test_the_id_does_not_depend_on_the_process() -> None:
    names = "from attnfuzz.generators.model.codec import load_program, program_id"
    script = f"{names}; print(program_id(load_program({RICH_YAML!r})))"
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == program_id(RICH)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mask: {kind: spiral}", "mask: unknown kind 'spiral', expected one of all_true, "),
        ("mask: {}", "mask: expected a kind, one of all_true, "),
        ("mask: causal", "mask: expected a mapping, got 'causal'"),
        (
            "mask: {kind: not, inner: {kind: sliding_window, window: -3}}",
            "mask.inner.window: expected an integer >= 0, got -3",
        ),
        (
            "mask: {kind: table, table: {limit: 0}}",
            "mask.table.limit: expected an integer >= 1, got 0",
        ),
        ("mask: {kind: not}", "mask.inner: this key is required and missing"),
        ("shape: {q_len: -1}", "shape.q_len: expected an integer >= 0, got -1"),
        ("shape: {q_len: '16'}", "shape.q_len: expected an integer, got '16'"),
        ("shape: {q_len: 1.5}", "shape.q_len: expected an integer, got 1.5"),
        ("shape: {batch: true}", "shape.batch: expected an integer, got True"),
        ("shape: {qlen: 3}", "shape.qlen: unknown key, expected one of batch, q_heads, "),
        (
            "kernel: {kind: flex, backend: math}",
            "kernel.backend: unknown key, expected one of kind, scale, scale_from, block_mask, ",
        ),
        ("flavour: 1", "flavour: unknown key, expected one of seed, kernel, shape, "),
        ("q: {dtype: int8}", "q.dtype: expected 'float32', 'bfloat16', 'float16' or 'float64'"),
        (
            "calls: [{batch: 1, q_len: 2}]",
            "calls[0].kv_len: this key is required and missing",
        ),
        ("calls: 3", "calls: expected a list, got 3"),
        (
            "compile: {options: {max_autotune: [1]}}",
            "compile.options.max_autotune: expected true or false or an integer or text, got [1]",
        ),
        ("dirty_memory: yes", "dirty_memory: expected true or false, got 'yes'"),
        (
            "shape: {q_len: -1, kv_len: -1, batch: -1}",
            "shape.batch: expected an integer >= 0, got -1 (and 2 more problems)",
        ),
        ("", "expected a mapping, got None"),
        ("- 1", "expected a mapping, got [1]"),
        ("shape: {q_heads: 3, kv_heads: 2}", "shape.q_heads: expected a multiple of kv_heads"),
    ],
)
def test_what_is_no_program_is_refused_by_key(text: str, sentence: str) -> None:
    with pytest.raises(ProgramError) as refused:
        load_program(text, "program.yaml")
    assert str(refused.value).startswith(f"program.yaml: {sentence}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: &x [1]\nb: *x", "line 1, column 4: YAML aliases and anchors are not allowed"),
        ("a: *x", "line 1, column 4: YAML aliases and anchors are not allowed"),
        ("!!python/object/apply:os.system ['true']", "line 1, column 1: YAML tags are not"),
        ("a: !!str 1", "line 1, column 4: YAML tags are not allowed"),
        ("seed: 1\nseed: 2", "line 2, column 1: the key 'seed' stands here twice"),
        ("1: 2", "line 1, column 1: expected a key of plain text, got 1"),
        ("a: .inf", "line 1, column 4: expected a finite number, got '.inf'"),
        ("a: 1e999", "line 1, column 4: expected a finite number, got '1e999'"),
        ("a: " + "9" * 5000, "line 1, column 4: expected a number of at most 40 digits"),
        ("a: [1", "line 2, column 1: did not find expected"),
        ("a\n---\nb", "line 2, column 1: expected one YAML document, got several"),
        ("[" * 100_000, f"line 1, column 65: expected at most {MAX_DEPTH} levels of nesting"),
        ("- " * 100_000, f"line 1, column 129: expected at most {MAX_DEPTH} levels of nesting"),
        ("{a: " * 100_000, f"line 1, column 257: expected at most {MAX_DEPTH} levels"),
        ("x" * (MAX_BYTES + 1), f"expected at most {MAX_BYTES} bytes, got more"),
        (b"\xff\xfe\x00\x01" * 1000, "expected UTF-8 text, got binary data"),
        ("\x00\x01\x02", "expected YAML, got other bytes: "),
        ("a: \ud800", "expected UTF-8 text, got binary data"),
    ],
)
def test_dangerous_yaml_is_refused_by_line(text: str | bytes, sentence: str) -> None:
    with pytest.raises(ProgramError) as refused:
        load_yaml_safely(text, "it.yaml")
    assert str(refused.value).startswith(f"it.yaml: {sentence}")
    assert len(str(refused.value)) < 200


@settings(max_examples=500)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_noise_is_a_program_or_a_sentence(noise: bytes | str) -> None:
    try:
        program = load_program(noise, "noise")
    except ProgramError as refused:
        assert str(refused).startswith("noise: ")
    else:
        assert load_program(dump_program(program)) == program


@settings(max_examples=300)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=8,
    )
)  # fmt: skip
def test_plain_data_survives_yaml(data: object) -> None:
    assert load_yaml_safely(dump_yaml(data)) == data


def test_words_of_older_yaml_are_text() -> None:
    text = "[yes, on, 2020-01-01, 1:30, 0x10, 1e-5]"
    assert load_yaml_safely(text) == ["yes", "on", "2020-01-01", "1:30", "0x10", 1e-5]


def test_nested_python_data_meets_no_recursion_limit() -> None:
    data: dict[str, object] = {"kind": "causal"}
    for _ in range(5000):
        data = {"kind": "not", "inner": data}
    with pytest.raises(ProgramError, match=f"at most {MAX_DEPTH} levels"):
        from_data({"mask": data})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="missing.yaml: cannot be read: No such file"):
        read_text(tmp_path / "missing.yaml")
    with pytest.raises(ProgramError, match="expected a regular file, got a folder"):
        read_text(tmp_path)
    large = tmp_path / "large.yaml"
    large.write_bytes(os.urandom(10_000_000))
    with pytest.raises(ProgramError, match=f"expected at most {MAX_BYTES} bytes"):
        read_text(large)


def test_outcomes_survive() -> None:
    outcome = Outcome(
        status="failed",
        failure=Failure(
            kind=FailureKind.WRONG_RESULT,
            phase=Phase.CHECK,
            layer=Layer.INDUCTOR,
            diffs=(
                Diff(
                    output="dq", what="value", expected="1", actual="inf", error=float("inf"),
                    budget=1e-6,
                ),
            ),
            evidence={"stack": "a\n  b: c\n\td\x1b[0m"},
        ),
        cost=Cost(wall_s=1.5, phases={"eager": 0.25}),
    )  # fmt: skip
    data = outcome_to_data(outcome)
    assert data["failure"]["diffs"][0]["error"] == "inf"
    assert outcome_from_data(json.loads(json.dumps(data, allow_nan=False))) == outcome
    assert outcome_from_data(load_yaml_safely(dump_yaml(data))) == outcome


def test_bad_outcomes_are_refused_by_key() -> None:
    with pytest.raises(ProgramError, match=r"^f.yaml: failure.kind: expected 'compile_error', "):
        outcome_from_data(
            {"status": "failed", "failure": {"kind": "x", "phase": "check"}}, "f.yaml"
        )


def test_undecodable_evidence_is_kept_as_far_as_it_is_text() -> None:
    failure = Failure(kind=FailureKind.CRASH, phase=Phase.FORWARD, evidence={"log": "a\udcffb"})
    data = outcome_to_data(Outcome(status="failed", failure=failure))
    read = outcome_from_data(load_yaml_safely(dump_yaml(data)))
    assert read.failure is not None and read.failure.evidence == {"log": "a?b"}
