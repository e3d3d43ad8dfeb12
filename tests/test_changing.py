"""Arguments that change between calls, and BlockMasks for other extents than the call has."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attnfuzz.actors.child.compiler_log import CompilerLog
from attnfuzz.actors.child.program_module import ProgramModule
from attnfuzz.actors.oracles.hygiene import too_many_compilations
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.model.codec import dump_program, load_program, program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.indices import Index, IntArgument
from attnfuzz.generators.model.masks import BlockMap, Causal, Compare, Mask
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import (
    Argument,
    Call,
    Compile,
    Input,
    Layout,
    Program,
    Shape,
    Surround,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.changing import MASKS, SCORES
from attnfuzz.generators.strategies.shards import generate
from tests.support.child_programs import tell
from tests.support.rendered import assert_means_itself, calls_of, eagerly, load

GOLDEN = Path(__file__).parent / "golden" / "changing"
PLANTED = Path(__file__).parents[1] / "benchmarks" / "planted_changing"
COMPILED = Compile(backend="eager")
SHAPE = Shape(batch=2, q_heads=2, kv_heads=2, q_len=6, kv_len=9, head_dim=8)
KEYS = Compare(op="<", left=Index(axis="kv_idx"), right=IntArgument())
NUMBER = Argument(what="number", values=(8.0, 4.0), given="int")
SCALE = Argument(values=(1.0, 2.0))
FLEX = Program(kernel=Flex(block_mask=BlockMaskSpec()), shape=SHAPE, mask=KEYS, argument=NUMBER)
SCORED = Program(kernel=Flex(), shape=SHAPE, score_mod=SCORES[2], argument=NUMBER)
PROGRAMS = {
    "scale": Program(argument=SCALE, compile=COMPILED),
    "scale-tensor": Program(
        kernel=Handwritten(scaling="query_div"), compile=COMPILED, draws=1,
        argument=replace(SCALE, given="tensor"),
    ),
    "scale-int": Program(kernel=Flex(), compile=COMPILED, argument=replace(SCALE, given="int")),
    "number": replace(FLEX, compile=COMPILED),
    "number-tensor": replace(
        FLEX, compile=COMPILED, argument=replace(NUMBER, given="tensor"),
        kernel=Flex(block_mask=BlockMaskSpec(made="inside")),
    ),
    "number-dense": Program(shape=SHAPE, mask=MASKS[0], argument=NUMBER, compile=COMPILED),
    "number-score": replace(SCORED, compile=COMPILED),
    "number-computed": replace(SCORED, compile=COMPILED, kernel=Flex(computed=True)),
    "number-computed-mask": replace(
        FLEX, compile=COMPILED,
        kernel=Flex(block_mask=BlockMaskSpec(made="inside"), computed=True),
    ),
    "number-computed-tensor": replace(
        SCORED, compile=COMPILED, argument=replace(NUMBER, given="tensor"),
        kernel=Flex(computed=True),
    ),
    "computed-scale": replace(SCORED, argument=None, compile=COMPILED, score_mod=None,
        kernel=Flex(scale_from="q_len"), calls=(Call(batch=1, q_len=4, kv_len=4),)),
    "in-place": Program(draws=1, in_place=True, compile=COMPILED),
    "in-place-weights": Program(
        draws=1, in_place=True, compile=COMPILED, surround=Surround(projections=True)
    ),
    "other-batch": Program(
        kernel=Flex(block_mask=BlockMaskSpec(batch=True, other=(-1, 0, 0, 0))), shape=SHAPE,
        mask=Causal(), compile=COMPILED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str) -> None:
    """`ATTNFUZZ_UPDATE_GOLDEN=1 pytest tests/test_changing.py` writes them anew."""
    assert problems(PROGRAMS[name]) == []
    path, text = GOLDEN / f"{name}.py", source(PROGRAMS[name])
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_is_what_eager_attention_gives_in_each_call(name: str) -> None:
    assert_means_itself(eagerly(PROGRAMS[name]))


def test_each_call_has_its_number() -> None:
    module = load(replace(PROGRAMS["scale"], draws=2))
    assert calls_of(module) == [(0, 1.0), (0, 2.0), (1, 2.0), (2, 2.0)]
    first, second = (module.run(module.attention, module.inputs(0, s))["out"] for s in (1.0, 2.0))
    assert not torch.allclose(first, second, atol=1e-2)


def test_draws_are_written_into_the_same_tensors() -> None:
    module = load(PROGRAMS["in-place-weights"])
    first = module.inputs(0)
    before = [tensor.clone() for tensor in first]
    second = module.inputs(1)
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert not any(torch.equal(*pair) for pair in zip(before, second, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_survive_yaml_and_get_simpler(name: str) -> None:
    program = PROGRAMS[name]
    assert load_program(dump_program(program)) == program
    seen = {program_id(simpler): simpler for simpler in candidates(program)}
    assert all(load_program(dump_program(simpler)) == simpler for simpler in seen.values())
    assert any(
        simpler.argument is None and not simpler.in_place and simpler.compile == program.compile
        for simpler in seen.values()
    )


def test_a_mask_without_its_argument_has_a_constant() -> None:
    alone = [simpler for simpler in candidates(FLEX) if simpler.argument is None and simpler.mask]
    assert all("argument" not in dump_program(simpler) for simpler in alone)


CHANGES: dict[str, dict[str, Any]] = {
    "argument": {"argument": None},
    "argument.given": {"argument": Argument(what="number", values=(8.0, 4.0))},
    "argument.values": {"argument": replace(NUMBER, values=(8.0, 4.5))},
    "compile.via": {"compile": Compile(backend="eager", via="in_eager")},
    "in_place": {"in_place": True},
}


@pytest.mark.parametrize("key", CHANGES)
def test_what_it_does_not_go_with(key: str) -> None:
    assert key in [problem.key for problem in problems(replace(FLEX, **CHANGES[key]))]


COMPUTED = Program(kernel=Flex(scale_from="q_len"), shape=SHAPE, compile=COMPILED)
NOT_COMPUTED: dict[str, dict[str, Any]] = {
    "argument": {"argument": SCALE},
    "kernel.scale": {"kernel": Sdpa(scale=2.0, scale_from="head_dim")},
    "kernel.scale_from": {"kernel": Handwritten(scaling="none", scale_from="q_len")},
    "shape.q_len": {"shape": replace(SHAPE, q_len=0)},
    "calls[0].q_len": {"calls": (Call(batch=1, q_len=0, kv_len=4),)},
}


@pytest.mark.parametrize("key", NOT_COMPUTED)
def test_a_scale_is_computed_from_what_is_there_and_is_nothing_else(key: str) -> None:
    assert problems(COMPUTED) == []
    wrong = replace(COMPUTED, **NOT_COMPUTED[key])
    assert [problem.key for problem in problems(wrong)] == [key]


def test_a_computed_scale_is_drawn_and_minimized_to_the_usual_one() -> None:
    drawn = [p.kernel for p in generate(20, 1000, profile="inductor-flex")]
    of = Counter(kernel.scale_from for kernel in drawn if isinstance(kernel, Flex))
    assert of["head_dim"] and of["q_len"] >= 5 and of["constant"] > 0.9 * len(drawn)
    simpler = [p.kernel for p in candidates(COMPUTED) if isinstance(p.kernel, Flex)]
    assert any(kernel.scale_from == "constant" for kernel in simpler)


def test_a_tensor_that_is_expanded_cannot_be_written() -> None:
    expanded = Program(draws=1, in_place=True, q=Input(layout=Layout(expand=(1,))))
    assert [problem.key for problem in problems(expanded)] == ["in_place"]
    mask = Program(draws=1, in_place=True, mask=Causal(), kernel=Sdpa(mask_layout="expanded"))
    assert [problem.key for problem in problems(mask)] == ["kernel.mask_layout"]


@pytest.mark.parametrize("kernel", [Sdpa(), Sdpa(mask_form="float"), Handwritten(masking="where")])
def test_a_mask_is_written_whole_where_calls_share_their_tensors(kernel: Any) -> None:
    program = Program(draws=1, in_place=True, mask=Causal(), kernel=kernel)
    assert problems(program) == []
    module = load(program)
    for _ in range(2):
        assert all(0 not in tensor.stride() for tensor in module.inputs(0))
    assert_means_itself(program)


def test_a_script_goes_on_to_the_failing_call() -> None:
    diff = Diff(output="out", what="value", expected="1", actual="2", call=1, error=1, budget=0.1)
    failure = Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.DYNAMO, diffs=(diff,)
    )
    text = repro(
        replace(PROGRAMS["scale"], argument=replace(SCALE, values=(1.0, 2.0, 3.0))), failure
    )
    assert "for scale in [1.0, 2.0]:" in text
    assert "scale=scale" in text
    assert "q, k, v = (t.double() for t in (q, k, v))" in text


def test_they_are_drawn_and_the_plain_program_stays_the_most_frequent() -> None:
    drawn = generate(20, 2000)
    found: Counter[str] = Counter(p.argument.what for p in drawn if p.argument is not None)
    found["in_place"] = sum(p.in_place for p in drawn)
    found["other"] = sum(
        any(name.startswith("block_mask.other") for name in features(p)) for p in drawn
    )
    assert min(found[name] for name in ("scale", "number", "in_place", "other")) >= 5
    assert sum(found.values()) < len(drawn) / 4


def test_hygiene_counts_numbers_that_are_not_tensors(tmp_path: Path) -> None:
    def kinds(name: str) -> int:
        path = tmp_path / f"{name}.py".replace("-", "_")
        path.write_text(source(PROGRAMS[name]))
        guarded = Job.of(PROGRAMS[name]).oracles["numbers"]
        return len(set(ProgramModule(path, "program_of_a_test").compiled_for(guarded)))

    assert [kinds(name) for name in ("scale", "scale-tensor", "number", "number-dense")] == [
        2, 1, 2, 1,
    ]  # fmt: skip
    log = CompilerLog(tmp_path / "program.py")
    assert too_many_compilations(log, [(), ()], None, 1) == []


def test_a_cache_that_the_first_call_fills_is_worth_a_compilation() -> None:
    def shapes(spec: BlockMaskSpec, joints: Any = "functions", mask: Mask | None = None) -> int:
        kernel = Flex(block_mask=spec, joints=joints)
        program = Program(kernel=kernel, mask=mask or Causal(), compile=Compile(), draws=1)
        return int(Job.of(program).oracles["shapes"])

    assert shapes(BlockMaskSpec()) == shapes(BlockMaskSpec(made="inside")) == 1
    assert shapes(BlockMaskSpec(made="cached"), "operators") == 1
    assert shapes(BlockMaskSpec(made="cached")) == 2
    captures = BlockMap(block=16)
    assert shapes(BlockMaskSpec(made="cached"), "operators", captures) == 2


def test_other_lengths_are_refused_and_others_are_not() -> None:
    def refused(other: tuple[int, int, int, int]) -> bool:
        spec = BlockMaskSpec(batch=True, heads=True, other=other)
        program = Program(kernel=Flex(block_mask=spec), shape=SHAPE, mask=Causal())
        assert problems(program) == []
        return any("BlockMask serves the lengths" in one.why for one in for_program(program))

    assert refused((0, 0, 1, 0))
    assert refused((0, 0, 0, -1))
    assert not refused((1, -1, 0, 0))


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("scale_of_the_first_call", "scale"),
        ("captured_int_is_not_guarded", "number-score"),
        ("tensors_are_known_again", "in-place"),
    ],
)
def test_a_planted_fault_is_met_by_its_program_alone(fault: str, name: str) -> None:
    def told(program: Program) -> str:
        job = {
            "compile": asdict(COMPILED),
            "preload": [str(PLANTED / f"{fault}.py")],
            "oracles": Job.of(program).oracles,
            "layers": False,
        }
        return tell(source(program), job).kind

    assert told(Program(compile=COMPILED, draws=1)) == "passed"
    assert told(PROGRAMS[name]) == "wrong_result"
