"""Modes that a program is run in, ways to compile it, marked sizes, and extents of 0."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attnfuzz.actors.child import layers
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.fuzz.reduce.search import at_layer
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import Flex, Handwritten
from attnfuzz.generators.model import masks, scores
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Layout,
    Marks,
    Mesh,
    Modes,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates, fitted
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import Place, Swarm
from tests.support.child_programs import tell
from tests.support.rendered import calls_of, load

GOLDEN = Path(__file__).parent / "golden" / "modes"
SHAPE = Shape(batch=2, q_heads=2, kv_heads=2, q_len=8, kv_len=12, head_dim=8)
HAND = Program(shape=SHAPE, kernel=Handwritten(), compile=Compile(backend="eager"))
FLEX = Program(
    shape=SHAPE, kernel=Flex(block_mask=BlockMaskSpec()), mask=masks.Causal(), compile=Compile()
)
OTHER = (Call(batch=3, q_len=5, kv_len=17),)
EXPORT = Compile(via="export", backend="eager")


def via(way: Any, **rest: Any) -> Program:
    backend = rest.pop("backend", "eager")
    return replace(HAND, compile=Compile(via=way, backend=backend), **rest)


PROGRAMS = {
    "in-eager": via("in_eager", training=Training()),
    "in-compiled": via("in_compiled"),
    "module": via("module", surround=Surround(rope=True)),
    "layers": via("layers"),
    "export": via("export", training=Training()),
    "export-calls": via("export", calls=OTHER),
    "aoti": replace(HAND, compile=Compile(via="aoti", options={"max_autotune": True})),
    "marks": replace(
        HAND,
        compile=Compile(
            backend="eager", marks=Marks(batch="unbacked", q_len="dynamic", kv_len="static")
        ),
    ),
    "marks-projected": replace(
        HAND, surround=Surround(projections=True), training=Training(),
        compile=Compile(backend="eager", marks=Marks(kv_len="dynamic")),
    ),
    "deterministic": replace(HAND, modes=Modes(deterministic=True, matmul_precision="medium")),
    "default-dtype": replace(HAND, modes=Modes(default_dtype="bfloat16"), training=Training()),
    "compiled-autograd": replace(
        HAND, modes=Modes(compiled_autograd=True, default_dtype="float64"), training=Training(),
        compile=Compile(backend="aot_eager"),
    ),
    "no-heads": replace(HAND, shape=replace(SHAPE, q_heads=0, kv_heads=0)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def same_state() -> Iterator[None]:
    """What a program sets for its process is this process's too."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str) -> None:
    """`ATTNFUZZ_UPDATE_GOLDEN=1 pytest tests/test_modes.py` writes them anew."""
    assert problems(PROGRAMS[name]) == []
    path, text = GOLDEN / f"{name}.py", source(PROGRAMS[name])
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "aoti"])
def test_what_is_compiled_gives_what_is_written(name: str) -> None:
    """Every output, of every call."""
    torch._dynamo.reset()
    module = load(PROGRAMS[name])
    eager = getattr(module, "run_attention", module.run)
    for call in calls_of(module):
        expected = eager(module.attention, module.inputs(*call))
        run = getattr(module, "run_compiled", eager)
        actual = run(module.compiled, module.inputs(*call))
        assert actual.keys() == expected.keys()
        for output, value in actual.items():
            torch.testing.assert_close(value, expected[output])
            assert value.requires_grad == expected[output].requires_grad


def test_modes_are_on_while_attention_runs_and_off_for_its_reference() -> None:
    module = load(PROGRAMS["default-dtype"])
    seen = []

    def spy(*args: Any) -> Any:
        seen.append(torch.get_default_dtype())
        return module.reference(*args)

    in_mode = module.run_attention(spy, module.inputs())
    plain = module.run(spy, module.inputs())
    assert seen == [torch.bfloat16, torch.float32]
    for name, value in plain.items():  # gradients of the output included: drawn alike
        torch.testing.assert_close(value, in_mode[name])


def test_compiled_autograd_compiles_the_backward_pass() -> None:
    module = load(PROGRAMS["compiled-autograd"])
    torch._dynamo.utils.counters.clear()
    module.run(module.attention, module.inputs())
    assert not torch._dynamo.utils.counters["compiled_autograd"]
    module.run_compiled(module.compiled, module.inputs())
    assert torch._dynamo.utils.counters["compiled_autograd"]["captures"] == 1


def test_marked_sizes_are_symbols() -> None:
    seen: list[list[Any]] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append([i for i in inputs if isinstance(i, torch.SymInt)])
        return graph

    torch._dynamo.reset()
    marked = load(replace(HAND, compile=Compile(backend="eager", marks=Marks(q_len="dynamic"))))
    plain = load(HAND)
    for module in (marked, plain):
        torch.compile(module.attention, backend=backend)(*module.inputs())
    assert [len(symbols) for symbols in seen] == [1, 0]


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (via("export", kernel=Handwritten(out_layout="blhd")), "compile.via"),
        (replace(FLEX, compile=EXPORT), "compile.via"),
        (via("export", backend="inductor"), "compile.backend"),
        (via("aoti"), "compile.backend"),
        (via("aoti", backend="inductor", training=Training()), "training"),
        (replace(HAND, compile=replace(EXPORT, dynamic=True)), "compile.dynamic"),
        (replace(HAND, compile=replace(EXPORT, fullgraph=False)), "compile.fullgraph"),
        (via("export", surround=Surround(checkpoint="full")), "surround.checkpoint"),
        (via("export", grad_mode="no_grad"), "grad_mode"),
        (via("export", transform="vmap"), "transform"),
        (via("export", mesh=Mesh()), "mesh"),
        (via("export", calls=(Call(batch=1, q_len=8, kv_len=12),)), "shape.batch"),
        (via("export", calls=OTHER, q=Input(layout=Layout(order=(0, 2, 1, 3)))), "calls"),
        (
            replace(HAND, compile=replace(EXPORT, marks=Marks(batch="dynamic"))),
            "compile.marks.batch",
        ),
        (
            replace(HAND, shape=Shape(), compile=Compile(marks=Marks(batch="unbacked"))),
            "compile.marks.batch",
        ),
        (
            replace(HAND, compile=Compile(dynamic=False, marks=Marks(q_len="dynamic"))),
            "compile.marks.q_len",
        ),
        (replace(HAND, modes=Modes(compiled_autograd=True)), "modes.compiled_autograd"),
        (
            via("export", modes=Modes(compiled_autograd=True), training=Training()),
            "modes.compiled_autograd",
        ),
        (
            replace(
                FLEX, score_mod=scores.Alibi(inner=scores.Score()),
                modes=Modes(default_dtype="float64"),
            ),
            "modes.default_dtype",
        ),
        (replace(HAND, shape=replace(SHAPE, q_heads=0)), "shape.kv_heads"),
        (replace(FLEX, shape=replace(SHAPE, q_heads=0, kv_heads=0)), "shape.q_heads"),
        (
            replace(HAND, shape=replace(SHAPE, batch=0), surround=Surround(projections=True)),
            "shape.batch",
        ),
    ],
)  # fmt: skip
def test_what_is_no_program(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_static_marks_and_empty_batches_are_programs() -> None:
    static = Compile(backend="eager", marks=Marks(batch="static", q_len="static"))
    assert problems(Program(kernel=Handwritten(), compile=static)) == []
    for program in (HAND, FLEX, Program()):
        assert problems(replace(program, shape=replace(SHAPE, batch=0))) == []


def test_old_programs_have_no_new_features() -> None:
    assert features(Program()) == frozenset()
    assert not any("via" in f or "modes" in f or "marks" in f for f in features(FLEX))


def test_the_yardstick_follows_the_precision_of_matrix_products() -> None:
    def dtype(program: Program) -> str | None:
        return Job.of(program).compute_dtype

    medium = Modes(matmul_precision="medium")
    assert dtype(HAND) is None
    assert dtype(replace(HAND, modes=medium)) == "bfloat16"
    doubles = {name: Input(dtype="float64") for name in ("q", "k", "v")}
    assert dtype(replace(HAND, modes=medium, **doubles)) is None  # type: ignore[arg-type]
    assert dtype(replace(HAND, modes=medium, autocast="float16")) == "float16"


CONSTRAINT = (
    "torch.fx.experimental.symbolic_shapes.ConstraintViolationError: Constraints violated "
    "(L['q'].size()[2])! For more information, run with TORCH_LOGS=\"+dynamic\".\n  - You marked "
    "L['q'].size()[2] as dynamic but your code specialized it to be a constant (8)."
)
DATA_DEPENDENT = (
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on "
    "data-dependent expression Eq(u0, 0) (unhinted: Eq(u0, 0)).  (Size-like symbols: u0)"
)
ANNOTATE = (
    "torch._dynamo.exc.UserError: Consider annotating your code using torch._check*(). Could not "
    "guard on data-dependent expression u0 > 16 (unhinted: u0 > 16).  (Size-like symbols: u0)"
)


@pytest.mark.parametrize(
    ("text", "mark", "other"),
    [
        (CONSTRAINT, "dynamic", "unbacked"),
        (DATA_DEPENDENT, "unbacked", "dynamic"),
        (ANNOTATE, "unbacked", "dynamic"),
    ],
)
def test_marked_sizes_may_be_refused(text: str, mark: Any, other: Any) -> None:
    def refused(marks: Marks) -> bool:
        program = replace(HAND, compile=Compile(marks=marks))
        return any(re.search(refusal.pattern, text) for refusal in for_program(program))

    assert refused(Marks(q_len=mark))
    assert not refused(Marks(q_len=other)) and not refused(Marks())


def failed() -> dict[str, Any]:
    return {"kind": "wrong_result", "raised": None, "diffs": [{"output": "out", "what": "value"}]}


@pytest.mark.parametrize(
    ("way", "backend", "shows_at", "layer"),
    [
        ("aoti", "inductor", (), "inductor"),
        ("aoti", "inductor", ("aot_eager",), "aot_eager"),
        ("aoti", "inductor", ("eager", "aot_eager"), "export"),
        ("export", "eager", (), "export"),
        ("module", "inductor", ("eager",), "dynamo"),
    ],
)
def test_the_layer_to_blame(way: str, backend: str, shows_at: tuple[str, ...], layer: str) -> None:
    settings = {"via": way, "backend": backend}
    assert layers.blame(settings, failed(), lambda b: failed() if b in shows_at else None) == layer


def test_stopping_at_a_backend_is_for_whatever_is_compiled_within() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.ones(3)
    with layers.stopping_at("eager"):
        compiled = torch.compile(double, mode="max-autotune", fullgraph=True)
        assert torch.equal(compiled(x), x * 2)
        assert torch.equal(torch.compile(fullgraph=True)(double)(x), x * 2)
    module = load(PROGRAMS["aoti"])
    for backend in ("eager", "aot_eager"):
        module.loaded.clear()
        with layers.stopping_at(backend):
            out = module.compiled(*module.inputs())
        torch.testing.assert_close(out, module.attention(*module.inputs()))


def test_minimization_goes_down_a_layer_and_back_to_no_modes() -> None:
    program = replace(PROGRAMS["aoti"], compile=Compile(via="aoti"))
    assert at_layer(program, Layer.EXPORT) == replace(program, compile=EXPORT)
    assert at_layer(program, Layer.INDUCTOR) is None
    everything = replace(
        PROGRAMS["compiled-autograd"], shape=replace(SHAPE, batch=0),
        compile=Compile(via="module", backend="aot_eager", marks=Marks(q_len="dynamic")),
    )  # fmt: skip
    simpler = list(candidates(everything))
    assert any(p.modes == Modes() for p in simpler)
    assert any(p.compile and p.compile.via == "compile" for p in simpler)
    assert any(p.compile and p.compile.marks == Marks() for p in simpler)
    assert any(p.shape == Shape() for p in simpler)
    untrained = fitted(replace(everything, training=None))
    assert not untrained.modes.compiled_autograd and problems(untrained) == []


def failure(kind: FailureKind) -> Failure:
    diff = Diff(output="out", what="value", expected="1", actual="2", error=0.5, budget=0.1)
    return Failure(kind=kind, phase=Phase.CHECK, layer=Layer.AOT_EAGER, diffs=(diff,))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_runs_in_the_same_modes(name: str) -> None:
    """It is executed, with a budget that nothing exceeds."""
    program = PROGRAMS[name]
    wrong = failure(FailureKind.WRONG_RESULT)
    text = repro(program, wrong)
    compile(text, name, "exec")
    if name not in ("aoti", "no-heads"):  # an empty result has no largest error
        torch._dynamo.reset()
        exec(text, {"__name__": "script"})
    assert ("run_compiled(compiled" in text) == program.modes.compiled_autograd
    only_run = repro(program, replace(wrong, kind=FailureKind.RUNTIME_ERROR))
    assert ("_enable(" in only_run) == program.modes.compiled_autograd
    assert ("torch.set_default_dtype" in only_run) == (program.modes.default_dtype != "float32")
    in_eager = repro(program, replace(wrong, layer=Layer.EAGER))
    assert "compiled" not in in_eager.replace("mark", "")


def test_drawn_rarely_and_only_where_programs_run_on_a_cpu() -> None:
    drawn = generate(4, 1500)
    assert [problem for program in drawn for problem in problems(program)] == []
    new = ("modes.", "compile.via.", "compile.marks.", "shape.batch.0", "shape.heads.0")
    having = [p for p in drawn if any(f.startswith(new) for f in features(p))]
    assert 60 < len(having) < 400
    seen = {feature for program in drawn for feature in features(program)}
    for way in ("in_eager", "in_compiled", "module", "layers", "export", "aoti"):
        assert f"compile.via.{way}" in seen
    assert {"modes.deterministic", "modes.compiled_autograd", "shape.batch.0"} <= seen
    elsewhere = generate(3, 200, Swarm(place=Place(gpu=True)))
    assert not any(f.startswith(new) for p in elsewhere for f in features(p))


@pytest.mark.slow
def test_a_wrong_exported_program_is_blamed_on_export_and_compiling_is_a_phase() -> None:
    program = via("export")
    job = {"compile": asdict(program.compile) if program.compile else None}
    text = source(program)
    told = tell(text, job)
    assert told.kind == "passed"
    assert told.phases.index("compile") < told.phases.index("forward")
    faulty = text.replace("exported.module()", "lambda *args: 1.1 * exported.module()(*args)")
    found = tell(faulty, job).failure
    assert (found["kind"], found["layer"]) == ("wrong_result", "export")


@pytest.mark.slow
def test_a_fault_that_only_layers_meet_is_seen_and_blamed() -> None:
    program = via("layers", backend="aot_eager")
    job = {"compile": asdict(program.compile) if program.compile else None}
    faulty = source(program).replace("    return result", "    return 1.1 * result")
    found = tell(faulty, job).failure
    assert (found["kind"], found["layer"]) == ("wrong_result", "dynamo")


def test_what_is_exported_is_not_for_cards_that_are_not_there() -> None:
    exported = via("export")
    unfit = TARGETS["virtual-sm90"].unfit(exported)
    assert unfit is not None and unfit.startswith("compile.via: ")
    assert TARGETS["cpu"].unfit(exported) is None
