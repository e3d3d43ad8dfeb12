"""Graphs that decode: what is drawn means one pass over the whole."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from attnfuzz.actors.oracles.hygiene import too_many_compilations
from attnfuzz.actors.oracles.purity import Snapshot
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.steps.arithmetic import Pointwise
from attnfuzz.generators.kernels.graph.steps.attention import Attend
from attnfuzz.generators.kernels.graph.steps.state import (
    PositionMask,
    Store,
)
from attnfuzz.generators.kernels.specs import Graph
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Layer,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Compile, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import shard_programs
from attnfuzz.generators.strategies.swarm import Swarm, swarm_for
from tests.support.decoding import decoding, graph_of, stored_as
from tests.support.rendered import eagerly

SLOTS = {"in_order", "ring", "pages", "appended", "listed"}
FAULTS = Path(__file__).parent.parent / "benchmarks" / "planted_state"

WRITTEN = """\
def attention(q, k, v, cache_k, cache_v, pos):
    Lq = q.shape[2]
    Lkv = pos + Lq
    cache_k[:, :, pos:Lkv] = k
    keys = cache_k[:, :, :Lkv]
    cache_v[:, :, pos:Lkv] = v
    values = cache_v[:, :, :Lkv]
    out = F.scaled_dot_product_attention(q, keys, values, is_causal=True if Lq > 1 else False)
    return out
"""

RUN = """\
def run(fn, args):
    if fn is reference:  # the whole sequence at once
        return dict(zip(("out", "cache_k", "cache_v"), fn(*args)))
    q, k, v, cache_k, cache_v = args
    outs = []
    for start, stop in [(0, 14), (14, 15), (15, 16)]:
        part = [t[:, :, start:stop] for t in (q, k, v)]
        outs.append(fn(*part, cache_k, cache_v, start))
    return {"out": torch.cat(outs, dim=2), "cache_k": cache_k, "cache_v": cache_v}
"""

COPIED = """\
def attention(q, k, v, cache_k, cache_v, pos):
    Lq = q.shape[2]
    positions = pos + torch.arange(Lq)
    slots = torch.arange(16)
    keys = torch.slice_scatter(cache_k, k, 2, pos, pos + Lq)
    values = torch.slice_scatter(cache_v, v, 2, pos, pos + Lq)
    mask = slots <= positions[:, None]
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
    return out, keys, values
"""

LISTED = """\
def attention(q, k, v, cache_k, cache_v, pos):
    Lq = q.shape[2]
    cache_k.append(k)
    keys = torch.cat(cache_k, dim=2)
    cache_v.append(v)
    values = torch.cat(cache_v, dim=2)
    out = F.scaled_dot_product_attention(q, keys, values, is_causal=True if Lq > 1 else False)
    return out
"""


def module_of(program: Program) -> ModuleType:
    assert problems(program) == []
    module = ModuleType("rendered_program")
    sys.modules[module.__name__] = module
    exec(compile(source(program), "<program>", "exec"), module.__dict__)
    return module


def assert_means_the_whole(program: Program) -> None:
    """In float32, whatever the program's dtype: casts are to that."""
    inputs = {
        name: replace(getattr(program, name), dtype="float32", values="normal")
        for name in ("q", "k", "v")
    }
    module = module_of(replace(eagerly(program), dirty_memory=False, draws=0, **inputs))
    actual = module.run(module.attention, module.inputs())
    in_float64 = (t.double() if t.is_floating_point() else t for t in module.inputs())
    expected = module.run(module.reference, tuple(in_float64))
    assert actual.keys() == expected.keys()
    assert actual["out"].isfinite().all()
    for name, value in actual.items():
        tolerance = 2e-3 if name == "out" or graph_of(program).rotates else 0.0
        torch.testing.assert_close(
            value.double(), expected[name].double(), rtol=tolerance, atol=tolerance, equal_nan=True,
            msg=f"{name}: {program}",
        )  # fmt: skip


def drawn(count: int, seed: int) -> list[Program]:
    """Programs that decode."""
    found: list[Program] = []
    for index in range(100):
        every = shard_programs(seed, index, 10, {"graph": 1})
        found += [p for p in every if graph_of(p).decode is not None]
        if len(found) >= count:
            return found[:count]
    raise AssertionError("hardly a program decodes")


def test_golden() -> None:
    text = source(decoding(Decode(calls=2)))
    assert WRITTEN in text
    assert RUN in text


def test_lists_are_empty_in_each_run() -> None:
    text = source(decoding(Decode(slots="listed")))
    assert LISTED in text
    assert "    cache_k = []\n    cache_v = []\n    outs = []\n" in text


def test_caches_that_are_written_by_functions_are_returned_and_given_again() -> None:
    functional = Decode(calls=2, reads="all", writes="functional")
    text = source(decoding(functional, masked=True))
    assert COPIED in text
    assert "out, cache_k, cache_v = fn(*part, cache_k, cache_v, start)" in text
    assert Job.of(decoding(functional, masked=True)).oracles["written"] == ()
    in_pages = replace(functional, slots="pages")
    [problem] = problems(decoding(in_pages, masked=True))
    assert problem.key == "kernel.decode.writes" and "expected in_place" in problem.sentence


KINDS = {
    "in order": Decode(unwritten="nan", spare=3),
    "several tokens": Decode(calls=3, tokens=2),
    "no prefill": Decode(calls=8, tokens=2, unwritten="nan"),
    "one call": Decode(calls=0),
    "all slots": Decode(calls=3, reads="all", position="one_element", unwritten="normal", spare=4),
    "window": Decode(calls=3, window=3),
    "ring": Decode(
        calls=7, tokens=2, slots="ring", window=4, reads="all", position="arange", cache="bhld"
    ),
    "pages": Decode(calls=4, slots="pages", page=2, unwritten="nan", spare=1),
    "pages, all": Decode(calls=4, slots="pages", reads="all", position="tensor"),
    "appended": Decode(calls=3, slots="appended"),
    "listed": Decode(calls=3, slots="listed"),
    "functional": Decode(calls=3, reads="all", writes="functional", unwritten="normal", spare=2),
    "functional ring": Decode(
        calls=7, tokens=2, slots="ring", window=4, reads="all", writes="functional"
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_cache_means_the_whole(name: str) -> None:
    shape = Shape(batch=2, q_heads=4, kv_heads=2, head_dim=8)
    program = decoding(KINDS[name], masked=True, shape=shape)
    assert_means_the_whole(program)
    assert load_program(dump_program(program)) == program


def test_drawn_programs_are_valid_and_mean_the_whole() -> None:
    programs = drawn(30, seed=5)
    for program in programs:
        assert_means_the_whole(program)
    decodes = [decode for p in programs if (decode := graph_of(p).decode) is not None]
    assert {d.slots for d in decodes} == SLOTS
    assert len({d.position for d in decodes}) == 4
    assert {d.writes for d in decodes} == {"in_place", "functional"}


def test_a_profile_has_programs_that_decode_and_no_others() -> None:
    programs = [p for shard in range(10) for p in shard_programs(3, shard, 6, {"decode": 1.0})]
    decodes = [decode for p in programs if (decode := graph_of(p).decode) is not None]
    assert len(decodes) == len(programs)
    assert len(programs) / 2 < sum(program.compile is None for program in programs)
    assert {decode.slots for decode in decodes} == SLOTS


def test_without_the_feature_nothing_decodes() -> None:
    for index in range(30):
        swarm: Swarm = swarm_for(5, index, "graph")
        if not swarm.has("graph.state"):
            programs = shard_programs(5, index, 5, {"graph": 1})
            assert not any(graph_of(p).decode for p in programs)
            return
    raise AssertionError("every swarm has it")


def test_candidates_mean_the_whole_too() -> None:
    for program in drawn(2, seed=6):
        kept = [p for p in candidates(program) if isinstance(p.kernel, Graph)]
        assert any(graph_of(p).decode is None for p in kept)
        still = [p for p in kept if graph_of(p).decode is not None]
        for candidate in still[:: max(1, len(still) // 12)]:
            assert_means_the_whole(candidate)


def test_minimal_is_one_token_after_a_prefill() -> None:
    decode = Decode(calls=4, slots="pages", reads="all", position="tensor", page=8)
    program = decoding(decode, masked=True, shape=Shape(batch=2, q_heads=4, kv_heads=2))
    found: Program | None = program
    while found is not None:
        program = found
        graphs = (p for p in candidates(program) if isinstance(p.kernel, Graph))
        found = next((p for p in graphs if graph_of(p).decode is not None), None)
    assert graph_of(program).decode in (Decode(), Decode(calls=0))
    assert program.shape == Shape()


MASKED = decoding(Decode(), masked=True)
BODY = graph_of(MASKED).body


@pytest.mark.parametrize(
    ("steps", "key"),
    [
        ((*BODY[:2], Attend(q="q", k="keys", v="values", to="out")), "kernel.steps[2].mask"),
        ((*BODY[:2], Attend(q="q", k="k", v="values", to="out", causal=True)), "kernel.steps[2].k"),
        (
            (*BODY[:2], PositionMask(like="q", to="mask", form="zero_one"), BODY[3]),
            "kernel.steps[3].mask",
        ),
        ((*BODY[:2], Pointwise(of="keys", to="out")), "kernel.steps[1]"),
        ((BODY[0], Store(of="v", cache="cache_k", to="values"), *BODY[2:]), "kernel.steps"),
    ],
)
def test_what_means_something_else_is_a_problem(steps: Any, key: str) -> None:
    program = replace(MASKED, kernel=graph_of(MASKED).with_steps(steps))
    assert key in [problem.key for problem in problems(program)]


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (replace(MASKED, training=Training()), "training"),
        (replace(MASKED, shape=Shape(kv_len=8)), "shape.kv_len"),
        (replace(MASKED, compile=Compile(mode="reduce-overhead")), "compile.mode"),
        (decoding(Decode(calls=12, tokens=8), True), "kernel.decode.calls"),
        (decoding(Decode(slots="ring", reads="all"), True), "kernel.decode.window"),
        (decoding(Decode(position="tensor"), True), "kernel.decode.reads"),
        (decoding(Decode(reads="all", unwritten="nan"), True), "kernel.decode.unwritten"),
    ],
)
def test_what_does_not_go_with_a_decode_is_a_problem(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_only_what_is_declared_may_be_written() -> None:
    written = Job.of(MASKED).oracles["written"]
    assert set(written) == {"cache_k", "cache_v"}
    assert "written" not in Job.of(Program()).oracles
    args, names = (torch.zeros(2), torch.zeros(2)), ["q", "cache_k"]
    before = Snapshot(args, names, written)
    args[1].add_(1)
    assert before.differences(0) == []
    args[0].add_(1)
    assert [found["output"] for found in before.differences(0)] == ["q"]


def test_as_many_compilations_are_allowed_as_there_are_shapes() -> None:
    class Log:
        def counted(self) -> dict[str, int]:
            return {"0:attention": 3}

    shapes = Job.of(decoding(Decode(calls=3, position="tensor", reads="all"), True)).oracles
    assert shapes["shapes"] == 2
    assert Job.of(decoding(Decode(calls=3))).oracles["shapes"] == 4
    assert Job.of(decoding(Decode(calls=3, slots="listed"))).oracles["shapes"] == 4
    tensor = Decode(calls=4, tokens=4, position="tensor", reads="all", writes="functional")
    assert Job.of(decoding(tensor, True)).oracles["shapes"] == 1
    inference = decoding(tensor, True, grad_mode="inference_mode")
    assert Job.of(inference).oracles["shapes"] == 2, "its own cache is an inference tensor"
    log: Any = Log()
    assert too_many_compilations(log, [()], None, 0, 2) == []
    assert too_many_compilations(log, [()], None, 0, 1) != []


@pytest.mark.parametrize("via", ["compile", "module", "layers", "in_eager", "in_compiled"])
def test_each_way_to_call_takes_the_position(via: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    program = decoding(Decode(calls=2), compile=Compile(backend="eager", via=via))
    module = module_of(program)
    eager = module.run(module.attention, module.inputs())
    compiled = module.run(module.compiled, module.inputs())
    assert all(torch.equal(compiled[name], eager[name]) for name in eager)
    raised = Raised(type="TypeError", message="refused")
    failure = Failure(kind=FailureKind.COMPILE_ERROR, phase=Phase.FORWARD, raised=raised)
    text = repro(program, failure)
    assert text.endswith(
        "    outs.append(compiled(*part, cache_k, cache_v, start))\ntorch.cat(outs, dim=2)\n"
    )
    exec(compile(text, "repro.py", "exec"), {})


def test_lists_are_appended_to_once_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    listed = decoding(Decode(calls=3, slots="listed"), masked=True)
    for via in ("compile", "module", "in_eager", "in_compiled"):
        settings: Any = Compile(backend="eager", via=via)
        module = module_of(replace(listed, compile=settings))
        eager = module.run(module.attention, module.inputs())
        assert torch.equal(module.run(module.compiled, module.inputs())["out"], eager["out"])
    [problem] = problems(replace(listed, compile=Compile(backend="eager", via="layers")))
    assert problem.key == "compile.via"
    many = decoding(Decode(calls=12, slots="listed"), masked=True, compile=Compile())
    assert [problem.key for problem in problems(many)] == ["kernel.decode.calls"]


@pytest.mark.parametrize(
    ("decode", "output"), [(Decode(), "cache_v"), (Decode(slots="listed"), "out")]
)
def test_reproductions_run(decode: Decode, output: str) -> None:
    shape = Shape(batch=2)
    program = decoding(decode, shape=shape, compile=Compile(backend="eager"))
    diff = Diff(output=output, what="value", expected="", actual="", error=1.0, budget=1e-3)
    failure = Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.EAGER, oracle="numbers",
        diffs=(diff,),
    )  # fmt: skip
    text = repro(program, failure)
    assert "is reference" not in text
    exec(compile(text, "repro.py", "exec"), {})


@pytest.mark.parametrize(
    ("fault", "decode", "form"),
    [
        ("index_copy_last", Decode(position="tensor", reads="all", tokens=2), "index_copy"),
        ("scatter_expanded_index", Decode(position="tensor", reads="all"), "scatter"),
        ("pages_of_first_batch", Decode(slots="pages", reads="all"), None),
    ],
)
def test_planted_faults_are_seen(fault: str, decode: Decode, form: Any) -> None:
    program = decoding(decode, masked=True, shape=Shape(batch=2, q_heads=2, kv_heads=2))
    program = stored_as(program, form) if form is not None else program
    planted: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile((FAULTS / f"{fault}.py").read_text(), fault, "exec"), planted)
    try:
        with pytest.raises(AssertionError, match="^(out|cache_k|cache_v):"):
            assert_means_the_whole(program)
    finally:
        planted["library"]._destroy()
    assert_means_the_whole(program)
