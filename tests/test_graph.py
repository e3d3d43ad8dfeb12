"""Graphs of steps: what is drawn fits, means what it computes, and is minimized to what matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from types import ModuleType
from typing import Any, get_args

import pytest
import torch
from hypothesis import strategies as st

from attnfuzz.generators.kernels.graph.drawing import Drawing
from attnfuzz.generators.kernels.graph.spec import MOST_STEPS
from attnfuzz.generators.kernels.graph.steps.attention import ZeroEmptyRows
from attnfuzz.generators.kernels.graph.steps.union import AnyStep
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.kernels.specs import Graph, Sdpa
from attnfuzz.generators.model.codec import ProgramError, dump_program, load_program, program_id
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import Call, Layout, Program, Training
from attnfuzz.generators.model.tree import class_of, kind_of
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.shrink.complexity import complexity
from attnfuzz.generators.strategies.kernel import Parts
from attnfuzz.generators.strategies.provider import collect
from attnfuzz.generators.strategies.shards import shard_programs
from attnfuzz.generators.strategies.swarm import Swarm
from tests.support.bert import BERT
from tests.support.rendered import calls_of

WRITTEN = """\
def attention(q, k, v, mask):
    q = q.permute(0, 2, 1, 3)
    k = k.permute(0, 2, 1, 3)
    v = v.permute(0, 2, 1, 3)
    key = k.transpose(2, 3)
    scores = torch.matmul(q, key)
    scores = scores.div(8 ** 0.5)
    scores = scores + mask
    probs = scores.softmax(dim=-1)
    out = torch.matmul(probs, v)
    return out
"""


DETOURS = """\
kernel:
  kind: graph
  given: merged
  mask: {form: additive}
  steps:
  - {kind: unflatten, of: q, to: q, dim: 2, parts: [Hq, D]}
  - {kind: permute, of: q, to: q, dims: [0, 2, 1, 3]}
  - {kind: unflatten, of: k, to: key, dim: 2, parts: [Hkv, D]}
  - {kind: permute, of: key, to: key, dims: [0, 2, 1, 3]}
  - {kind: unflatten, of: v, to: v, dim: 2, parts: [Hkv, Dv]}
  - {kind: permute, of: v, to: v, dims: [0, 2, 1, 3]}
  - {kind: unsqueeze, of: key, to: x, dim: 0}
  - {kind: contiguous, of: x, to: x}
  - {kind: squeeze, of: x, to: key, dim: 0}
  - {kind: permute, of: q, to: query, dims: [3, 1, 2, 0]}
  - {kind: permute, of: query, to: query, dims: [3, 2, 1, 0]}
  - {kind: permute, of: key, to: key, dims: [0, 2, 1, 3]}
  - {kind: einsum, left: query, right: key, to: scores, equation: "bqhd,bkhd->bhqk"}
  - {kind: mask_scores, of: scores, mask: mask, to: scores, form: add}
  - {kind: softmax, of: scores, to: probs, dim: 3}
  - {kind: product, left: probs, right: v, to: out}
  - {kind: permute, of: out, to: out, dims: [0, 2, 1, 3]}
mask: {kind: causal}
shape: {q_heads: 2, kv_heads: 2}
"""

PLAIN = """\
def attention(q, mask):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, q)
    scores = scores + mask
    out = F.softmax(scores, dim=-1)
    return out
"""


def drawn(shards: int, seed: int = 3) -> Iterator[Program]:
    """Ten programs of each shard."""
    return (p for i in range(shards) for p in shard_programs(seed, i, 10, {"graph": 1}))


def graph_of(program: Program) -> Graph:
    assert isinstance(program.kernel, Graph)
    return program.kernel


def float32(program: Program) -> Program:
    """Not compiled, in float32 throughout: "medium" has products of bfloat16 on some processors."""
    inputs: dict[str, Any] = {
        name: replace(getattr(program, name), dtype="float32") for name in ("q", "k", "v")
    }
    modes = replace(program.modes, matmul_precision="highest")
    return replace(program, compile=None, modes=modes, **inputs)


def module_of(program: Program) -> ModuleType:
    module = ModuleType("rendered_program")
    exec(compile(source(program), "<program>", "exec"), module.__dict__)
    return module


def in_float64(args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(
        t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t
        for t in args
    )


def assert_means_itself(program: Program) -> None:
    module = module_of(program)
    for shape in calls_of(module):
        actual = module.run(module.attention, module.inputs(*shape))
        expected = module.run(module.reference, in_float64(module.inputs(*shape)))
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert actual[name].shape == value.shape, name
            finite = value.isfinite() & actual[name].isfinite()
            error = (actual[name].double() - value)[finite].abs()
            assert error.numel() == 0 or error.max() <= 1e-3 * (1 + value[finite].abs().max()), name


def test_a_graph_is_written_as_its_model_writes_it() -> None:
    program = load_program(BERT)
    assert WRITTEN in source(program)
    assert load_program(dump_program(program)) == program


def test_a_function_of_one_argument_is_given_it_whole() -> None:
    program = load_program("kernel: {kind: graph, steps: [{kind: scale, of: k, to: out}]}")
    names: dict[str, Any] = {}
    exec(source(program), names)
    (k,) = names["inputs"]()
    out = names["run"](names["attention"], names["inputs"]())["out"]
    assert k.shape == out.shape == (1, 1, 16, 16)


def test_what_is_drawn_fits() -> None:
    for program in drawn(12):
        assert problems(program) == []
        assert load_program(dump_program(program)) == program


def test_a_graph_with_every_detour_can_be_read_again() -> None:
    """Its file may have so many steps and no more."""
    drawing = Drawing(Parts.of(Swarm("graph")))
    for always in ("detour", "decorated", "rotated"):
        setattr(drawing.forms, always, st.just(True))
    drawing.families = dict.fromkeys(drawing.families, st.just("layers"))
    drawn = collect(st.composite(drawing.draw)("inductor"), 7, 200)
    most = max(len(program.kernel.steps) for program in drawn if isinstance(program.kernel, Graph))
    assert MOST_STEPS // 2 < most <= MOST_STEPS


def test_every_step_is_drawn() -> None:
    missing = {kind_of(step) for step in get_args(get_args(AnyStep)[0])}
    for program in drawn(100):
        missing -= set(kinds(program))
        if not missing:
            break
    assert not missing


def test_a_query_that_a_mask_leaves_no_key_of_a_part_is_merged_without_it() -> None:
    def has_empty_parts(program: Program) -> bool:
        kinds_there = [kind_of(class_of(step)) for step in graph_of(program).body]
        return "zero_empty_rows" in kinds_there and program.mask == Causal()

    found = [replace(float32(p), calls=(), draws=0) for p in drawn(80) if has_empty_parts(p)]
    written = [p for p in found if "finfo" not in source(p)]
    assert len(written) > 2
    unguarded = [replace(p, kernel=_without_zeros(graph_of(p))) for p in written]
    assert any(_out(module_of(program)).isnan().any() for program in unguarded)
    for program in written:
        assert _out(module_of(program)).isfinite().all()
        assert_means_itself(program)


def _without_zeros(graph: Graph) -> Graph:
    return graph.with_steps(s for s in graph.body if not isinstance(s, ZeroEmptyRows))


def _out(module: ModuleType) -> torch.Tensor:
    out: torch.Tensor = module.run(module.attention, module.inputs())["out"]
    return out


@pytest.mark.slow
def test_a_reference_composes_as_its_graph_does() -> None:
    programs = [float32(p) for p in drawn(3, seed=5)]
    judged = [p for p in programs if problems(p) == []]
    assert len(judged) > 20
    for program in judged:
        assert_means_itself(program)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("dims: [0, 2, 1, 3]}|dims: [0, 2, 1]}", "kernel.steps[0].dims: expected a permutation"),
        ("left: probs, right: v|left: v, right: v", "kernel.steps[8].right: expected 8 rows"),
        ("left: probs, right: v|left: scores, right: v", "kernel.steps[8].left: expected a soft"),
        ("dim: 3, form|dim: 4, form", "kernel.steps[7].dim: expected a dimension below 4, got 4"),
        ("right: v, to: out|right: k2, to: out", "kernel.steps[8].right: expected the name of"),
        ("to: out}|to: system}", "kernel.steps[8].to: expected one of q, k, v"),
        ("mask: {kind: causal}|seed: 1", "kernel.steps[6].mask: expected the name of a value"),
        ("of: v, to: v,|of: v, to: x,", "kernel.steps[2]: expected a step whose result is"),
    ],
)  # fmt: skip
def test_a_wrong_graph_gets_one_sentence(change: str, sentence: str) -> None:
    old, new = change.split("|")
    assert old in BERT
    with pytest.raises(ProgramError) as error:
        load_program(BERT.replace(old, new, 1), "p.yaml")
    assert sentence in str(error.value)
    assert str(error.value).count("\n") == 0


def test_masked_scores_are_no_query_of_a_fused_kernel() -> None:
    """A query of minus infinities is NaN where the kernel adds its mask, and hidden where a mask
    replaces scores."""
    text = """
kernel:
  kind: graph
  steps:
  - {kind: product, left: q, right: k, to: scores, form: matmul}
  - {kind: mask_scores, of: scores, mask: mask, to: scores}
  - {kind: attend, q: scores, k: k, v: v, to: out, mask: mask}
mask: {kind: causal}
"""
    with pytest.raises(ProgramError, match=r"kernel.steps\[2\].q: expected no scores that were"):
        load_program(text, "p.yaml")


def test_a_mask_does_not_make_the_scores_of_a_fused_kernel_larger() -> None:
    text = (
        "kernel: {kind: graph, given: blhd, steps:"
        " [{kind: attend, q: q, k: k, v: k, to: out, mask: mask}]}\nmask: {kind: all_true}"
    )
    with pytest.raises(ProgramError, match=r"steps\[0\].mask: expected one that broadcasts to"):
        load_program(text)


def test_a_length_of_zero_in_the_place_of_heads_is_refused() -> None:
    text = """
kernel:
  kind: graph
  steps:
  - {kind: permute, of: k, to: k, dims: [0, 2, 1, 3]}
  - {kind: permute, of: v, to: v, dims: [0, 2, 1, 3]}
  - {kind: attend, q: q, k: k, v: v, to: out}
shape: {q_heads: 2, kv_heads: 2, q_len: 2, kv_len: 2}
training: {wrt: [q]}
"""
    program = load_program(text)
    empty = replace(program, shape=replace(program.shape, kv_len=0))
    assert plugin_of(empty).fitted(empty) == empty
    assert problems(empty)


def test_candidates_are_simpler_graphs() -> None:
    programs = sorted(drawn(2, seed=9), key=lambda p: len(graph_of(p).steps))
    for program in (*programs[:2], programs[-1]):
        before = complexity(program)
        simpler = list(candidates(program))
        assert all(complexity(each) < before for each in simpler)
        assert len(simpler) < 300
        for each in simpler[::10]:
            source(each)


def minimized(program: Program, fails: Callable[[Program], bool]) -> tuple[Program, int]:
    """What is left of the program, and how many candidates were tried for it."""
    tried = 0
    while True:
        for simpler in candidates(program):
            tried += 1
            if fails(simpler):
                program = simpler
                break
        else:
            return program, tried


def kinds(program: Program) -> list[str | None]:
    steps = program.kernel.steps if isinstance(program.kernel, Graph) else ()
    return [str(kind_of(class_of(step))) for step in steps]


def test_minimization_leaves_the_steps_that_matter() -> None:
    """A failure that needs a softmax in float32 of scores that are scaled."""

    def fails(program: Program) -> bool:
        softmax = "softmax" in kinds(program) and any(
            getattr(step, "float32", False) for step in graph_of(program).steps
        )
        return "scale" in kinds(program) and softmax

    found = next(p for p in drawn(60, seed=4) if fails(p) and len(graph_of(p).steps) > 12)
    program, tried = minimized(found, fails)
    assert program_id(program) != program_id(found)
    assert len(graph_of(program).steps) <= 4, dump_program(program)
    assert graph_of(program).returns == ("out",)
    assert tried < 1000


def test_minimization_takes_away_what_comes_to_nothing() -> None:
    """The layout, two permutations as one, a copy, and what undoes another step."""

    def fails(program: Program) -> bool:
        return {"einsum", "softmax", "mask_scores"} <= set(kinds(program))

    program, tried = minimized(load_program(DETOURS), fails)
    assert attention_of(program) == PLAIN
    assert tried < 300


PROJECTED = """
kernel:
  kind: graph
  given: merged
  mask: {form: additive, fill: finfo_min}
  parameters: [{name: wqkv, rows: ['3', D], columns: [D]}]
  steps:
  - {kind: linear, of: q, weight: wqkv, to: qkv}
  - {kind: unflatten, of: qkv, to: qkv, dim: 2, parts: ['3', Hq, D]}
  - {kind: permute, of: qkv, to: qkv, dims: [2, 0, 3, 1, 4]}
  - {kind: split, of: qkv, to: [q2, k2, v2], dim: 0, form: unbind}
  - {kind: attend, q: q2, k: k2, v: v2, to: out, mask: mask}
mask: {kind: causal, offset: -1}
training: {wrt: []}
"""


def test_the_attention_alone_is_among_the_first_that_are_tried() -> None:
    """Nothing but a parameter has a gradient, which is not there any more."""
    program = load_program(PROJECTED)
    alone = Sdpa(mask_form="float", mask_fill="finfo_min")
    first = list(islice(candidates(program), 20))
    assert replace(program, kernel=alone, training=Training()) in first


MERGED = """
kernel:
  kind: graph
  given: merged
  steps:
  - {kind: unflatten, of: q, to: q, dim: 2, parts: [Hq, D]}
  - {kind: permute, of: q, to: q, dims: [0, 2, 1, 3]}
  - {kind: unflatten, of: k, to: k, dim: 2, parts: [Hkv, D]}
  - {kind: permute, of: k, to: k, dims: [0, 2, 1, 3]}
  - {kind: unsqueeze, of: k, to: value, dim: 2}
  - {kind: expand, of: value, to: value, dim: 2, size: G}
  - {kind: contiguous, of: value, to: value}
  - {kind: flatten, of: value, to: value, first: 1, last: 2}
  - {kind: attend, q: q, k: value, v: value, to: out}
shape: {q_heads: 6, kv_heads: 2}
compile: {}
"""


def test_what_is_stored_otherwise_and_groups_are_among_the_first_that_are_taken_away() -> None:
    program = load_program(MERGED)
    first = list(islice(candidates(program), 20))
    alone = [one for one in first if kinds(one) == ["permute", "permute", "attend"]]
    assert alone and graph_of(alone[0]).given == "blhd"
    assert alone[0].q.layout == alone[0].k.layout == Layout(order=(0, 2, 1, 3))
    assert alone[0].shape.kv_heads == 6
    stored = [one for one in first if "expand" in kinds(one) and "unflatten" not in kinds(one)]
    assert [graph_of(one).given for one in stored] == ["blhd", "bhld"]
    for one in stored:  # numbers are drawn as they are stored
        assert calls_alike(replace(program, q=one.q, k=one.k, v=one.v), one)


def calls_alike(one: Program, other: Program) -> bool:
    """Whether both give the same, of the same numbers."""
    results = []
    for program in (one, other):
        names: dict[str, Any] = {}
        exec(compile(source(replace(program, compile=None)), "<program>", "exec"), names)
        torch.manual_seed(0)
        results.append(names["run"](names["attention"], names["inputs"]())["out"])
    return bool(torch.equal(*results))


def attention_of(program: Program) -> str:
    text = source(program)
    return text[text.index("def attention") :].split("\n\n\n")[0] + "\n"


def test_a_script_never_compares_a_result_with_itself() -> None:
    """The reference's body stands in the script, and gives its result the name of the output."""
    program = load_program(BERT.replace("16, kv_heads: 16", "1, kv_heads: 1"), "<test>")
    diff = Diff(output="out", what="value", error=1.0, budget=1e-6, expected="0", actual="1")
    kind, phase = FailureKind.WRONG_RESULT, Phase.CHECK
    failure = Failure(kind=kind, phase=phase, layer=Layer.EAGER, diffs=(diff,))
    lines = repro(program, failure).splitlines()
    made = [at for at, line in enumerate(lines) if line.startswith("out = ")]
    assert len(made) == 1
    assert any(line.startswith("expected = ") for line in lines[made[0] :])


def test_further_calls_fit_the_function_that_is_written_for_all() -> None:
    """A step that needs an extent as a number has it in every call, but not where calls differ."""
    steps = [
        "{kind: split, of: q, to: [x, y], dim: 2}",
        "{kind: cat, of: [x, y], to: q, dim: 2}",
        "{kind: permute, of: k, to: key, dims: [0, 1, 3, 2]}",
        "{kind: product, left: q, right: key, to: scores}",
        "{kind: softmax, of: scores, to: probs, dim: 3}",
        "{kind: product, left: probs, right: v, to: out}",
    ]
    text = "kernel:\n  kind: graph\n  steps:\n" + "".join(f"  - {step}\n" for step in steps)
    one = load_program(text + "shape: {q_len: 16, kv_len: 16}\n", "<test>")
    assert not problems(one) and source(one)
    two = replace(one, calls=(Call(batch=1, q_len=32, kv_len=32),))
    assert [problem.key for problem in problems(two)] == ["kernel.steps[0].dim"]
