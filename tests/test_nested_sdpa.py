"""SDPA of nested tensors as a kernel: its renderings mean what each sequence computes alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from attnfuzz.actors.sandbox.job import Job
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import NestedSdpa
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.program import Call, Compile, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import Swarm
from tests.support.rendered import calls_of, load

SHAPE = Shape(q_heads=2, kv_heads=2, q_len=12, kv_len=18, head_dim=8, v_head_dim=4)
FAULT = Path(__file__).parent.parent / "benchmarks" / "planted_sdpa" / "nested_scale.py"


def nested(made: Any, batch: int = 1, **spec: Any) -> Program:
    return Program(kernel=NestedSdpa(made=made, **spec), shape=replace(SHAPE, batch=batch))


PROGRAMS = {
    "jagged": nested("jagged"),
    "random": nested("jagged", sequences=5, lengths="random"),
    "trained": replace(nested("jagged", sequences=3, scale=0.5), training=Training()),
    "calls": replace(nested("jagged"), calls=(Call(batch=1, q_len=5, kv_len=4),)),
    "list": replace(nested("jagged_list", lengths="random"), training=Training()),
    "strided": replace(nested("strided", sequences=3), training=Training()),
    "narrow": nested("narrow", batch=3),
    "narrow, random": nested("narrow", batch=3, lengths="random"),
    "whole": replace(nested("ragged_batch", batch=3, is_causal=True), training=Training()),
}


def assert_means_itself(program: Program) -> None:
    module = load(program)
    for call in calls_of(module):
        outputs = []
        for fn in (module.attention, module.reference):
            args = (
                t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t
                for t in module.inputs(*call)
            )
            outputs.append(module.run(fn, tuple(args)))
        for name in outputs[0]:
            torch.testing.assert_close(outputs[0][name], outputs[1][name], msg=f"{name}: {program}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_nested_tensors_compute_what_the_reference_means(name: str) -> None:
    assert_means_itself(PROGRAMS[name])
    assert load_program(dump_program(PROGRAMS[name])) == PROGRAMS[name]


def test_the_reference_is_attention_of_each_sequence() -> None:
    module = load(nested("jagged", sequences=3, is_causal=True))
    q, k, v, of_q, of_kv = module.inputs()
    out = module.reference(q, k, v, of_q, of_kv)
    for i in range(3):
        rows, columns = (slice(int(o[i]), int(o[i + 1])) for o in (of_q, of_kv))
        parts = (q[:, :, rows], k[:, :, columns], v[:, :, columns])
        expected = F.scaled_dot_product_attention(*parts, is_causal=True)
        torch.testing.assert_close(out[:, :, rows], expected)


@pytest.mark.parametrize("made", ["jagged", "strided"])
def test_causal_sequences_are_refused_by_design_on_a_cpu(made: str) -> None:
    program = nested(made, is_causal=True)
    module = load(program)
    with pytest.raises(RuntimeError) as raised:
        module.attention(*module.inputs())
    text = f"RuntimeError: {raised.value}"
    assert any(re.search(refusal.pattern, text) for refusal in for_program(program))
    assert not any(re.search(refusal.pattern, text) for refusal in for_program(nested(made)))


def test_torch_breaks_the_graph_of_jagged_sequences_alone() -> None:
    for made, breaks in (("jagged", True), ("ragged_batch", False)):
        program = replace(nested(made), compile=Compile(backend="eager", fullgraph=False))
        module = load(program)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        module.compiled(*module.inputs())
        reasons = list(torch._dynamo.utils.counters["graph_break"])
        assert bool(reasons) is breaks
        allowed = Job.of(program).oracles["breaks"]
        assert all(any(text in reason for text in allowed) for reason in reasons)


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (replace(nested("jagged"), mask=masks.Causal()), "mask"),
        (nested("jagged", batch=2), "shape.batch"),
        (replace(nested("strided"), compile=Compile()), "compile"),
        (replace(nested("jagged"), shape=replace(SHAPE, q_heads=4)), "shape.q_heads"),
        (nested("jagged", sequences=8), "shape.q_len"),
        (replace(nested("narrow"), shape=replace(SHAPE, q_len=0)), "shape.q_len"),
    ],
)
def test_what_nested_tensors_do_not_take_is_a_problem(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_every_way_to_make_them_is_drawn_and_simplified() -> None:
    drawn = [
        p for p in generate(5, 1200, swarm=Swarm("sdpa_forms")) if isinstance(p.kernel, NestedSdpa)
    ]
    made = {p.kernel.made for p in drawn if isinstance(p.kernel, NestedSdpa)}
    assert made == {"jagged", "jagged_list", "strided", "narrow", "ragged_batch"}
    kept = {one.kernel for one in candidates(PROGRAMS["trained"])}
    assert NestedSdpa() in kept


def test_a_planted_fault_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_scaled_dot_product_attention_math"
    monkeypatch.setattr(torch, name, getattr(torch, name))  # to be put back
    exec(compile(FAULT.read_text(), FAULT.name, "exec"), {})
    with pytest.raises(AssertionError, match="^out:"):
        assert_means_itself(PROGRAMS["trained"])
    assert_means_itself(PROGRAMS["jagged"])
    assert_means_itself(PROGRAMS["whole"])
