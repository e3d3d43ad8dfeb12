"""transformers' attention as a kernel: what its masks mean, what is drawn, and where `make systems`
has made its toolchain, the package itself in a sandbox."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from attnfuzz.actors.worker import Executor
from attnfuzz.fuzz.environment import check_packages
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import Transformers
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.outcome import Failure, FailureKind, Phase
from attnfuzz.generators.model.program import Call, Compile, Input, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from tests.support.executors import executor_with
from tests.support.systems_toolchain import TOOLCHAIN, needs_systems

WRONG = Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, oracle="numbers")
SHAPE = Shape(batch=3, q_heads=4, kv_heads=2, q_len=12, kv_len=12, head_dim=8)
NEW = replace(SHAPE, q_len=2)
B = range(SHAPE.batch)


def model(shape: Shape = SHAPE, mask: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=Transformers(**spec), shape=shape, mask=mask)


def kernel_of(program: Program) -> Transformers:
    assert isinstance(program.kernel, Transformers)
    return program.kernel


def padded(b: int, kv: int, side: str) -> bool:
    """A third of the first entry is padding, two thirds of the second, nothing of the third."""
    padding = (4, 8, 0)[b]
    return kv < padding if side == "left" else kv >= 12 - padding


MEANT: dict[str, tuple[Program, Callable[[int, int, int], bool]]] = {
    "causal": (model(), lambda b, q, k: k <= q),
    "causal of new tokens": (model(NEW, cache="static", spare=3), lambda b, q, k: k <= q + 10),
    "window": (model(pattern="sliding", window=3), lambda b, q, k: q - 3 < k <= q),
    "chunks": (model(pattern="chunked", window=5), lambda b, q, k: k <= q and k // 5 == q // 5),
    "chunks after padding": (
        model(pattern="chunked", window=5, padding="left"),
        lambda b, q, k: (
            k <= q
            and (k - (4, 8, 0)[b]) // 5 == (q - (4, 8, 0)[b]) // 5
            and not padded(b, k, "left")
        ),
    ),
    "all": (model(pattern="bidirectional"), lambda b, q, k: True),
    "near": (model(pattern="bidirectional_sliding", window=2), lambda b, q, k: abs(q - k) <= 2),
    "padding at the end": (
        model(padding="right"), lambda b, q, k: k <= q and not padded(b, k, "right")
    ),
    "packed": (
        model(sequences=2, pattern="sliding", window=3),
        lambda b, q, k: q - 3 < k <= q and (k < 4) == (q < 4),
    ),
    "packed chunks": (
        model(sequences=2, pattern="chunked", window=3),
        lambda b, q, k: (
            k <= q
            and (k < 4) == (q < 4)
            and (k - 4 * (k >= 4)) // 3 == (q - 4 * (q >= 4)) // 3
        ),
    ),
    "blocks": (
        model(block=2), lambda b, q, k: k <= q or (k // 2 == q // 2 and k // 2 % 2 == 1)
    ),
    "a mask too": (
        model(mask=masks.Single(axis="kv_idx", at=3)), lambda b, q, k: k == 3 and k <= q
    ),
    "or a mask": (
        model(mask=masks.PrefixLM(prefix=5), overlay="or"), lambda b, q, k: k <= q or k < 5
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_the_mask_that_is_meant(name: str) -> None:
    program, sees = MEANT[name]
    assert problems(program) == []
    assert load_program(dump_program(program)) == program
    names: dict[str, Any] = {"torch": torch}
    wanted = ("inputs", "mask_mod", "make_mask_mod")  # the package is needed for the others alone
    for node in ast.parse(source(program)).body:
        if isinstance(node, ast.FunctionDef) and node.name in wanted:
            exec(ast.unparse(node), names)
    seen = names["inputs"]()[-1].expand(3, 1, program.shape.q_len, 12)[:, 0]
    rows = range(program.shape.q_len)
    assert seen.tolist() == [[[sees(b, q, k) for k in range(12)] for q in rows] for b in B]


@pytest.mark.parametrize(
    ("key", "program"),
    {
        "kernel.block": model(block=2, pattern="bidirectional"),
        "kernel.sequences": model(sequences=2, padding="left"),
        "kernel.cache": model(cache="dynamic", pattern="bidirectional"),
        "kernel.made": model(cache="dynamic", made="outside"),
        "kernel.softcap": model(softcap=2.0),
        "shape.head_dim": model(replace(SHAPE, head_dim=7)),
        "shape.kv_len": model(replace(SHAPE, q_len=3)),
        "mask": model(mask=masks.BlockMap(per_head=True)),
        "k.dtype": replace(model(), k=Input(dtype="bfloat16")),
        "calls": replace(
            model(cache="static"), calls=(Call(batch=3, q_len=2, kv_len=12),)
        ),
    }.items(),
)  # fmt: skip
def test_what_is_no_program(key: str, program: Program) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_drawn_programs_are_valid_and_have_everything() -> None:
    programs = [p for seed in range(6) for p in generate(seed, 40, profile="transformers")]
    assert all(problems(p) == [] for p in programs)
    kernels = [kernel_of(p) for p in programs]
    for name in ("implementation", "pattern", "padding", "cache", "made", "overlay"):
        chosen = {getattr(kernel, name) for kernel in kernels}
        assert len(chosen) == {"implementation": 3, "pattern": 5, "padding": 3, "cache": 3}.get(
            name, 2
        )
    assert any(kernel.sequences > 1 for kernel in kernels)
    assert any(kernel.block for kernel in kernels)
    assert any(p.training for p in programs)


def test_it_shrinks_to_the_plainest() -> None:
    program = next(
        p
        for p in generate(3, 200, profile="transformers")
        if kernel_of(p).cache == "static" and kernel_of(p).padding != "none" and p.compile
    )
    for _ in range(200):
        simpler = next((c for c in candidates(program) if isinstance(c.kernel, Transformers)), None)
        if simpler is None:
            break
        assert problems(simpler) == []
        program = simpler
    assert program == Program(kernel=Transformers())


def test_only_flex_attention_refuses_to_train() -> None:
    def refused(implementation: Any) -> bool:
        trained = replace(model(implementation=implementation), training=Training())
        return any("backward on" in one.pattern for one in for_program(trained))

    assert refused("flex_attention")
    assert not refused("sdpa")


def test_the_script_of_a_minimized_program_is_short() -> None:
    for program in (model(NEW, pattern="sliding", cache="static", padding="left"),
                    model(pattern="chunked", implementation="flex_attention")):  # fmt: skip
        assert len(repro(program, WRONG).splitlines()) <= 40


def test_without_the_package_there_is_one_sentence() -> None:
    with pytest.raises(UserError, match="needs the package transformers"):
        check_packages(["transformers"], {"python": "3.11"}, "profiles")


@pytest.fixture(scope="module")
def real() -> Iterator[Executor]:
    with executor_with(TOOLCHAIN) as executor:
        yield executor


EAGERLY = Compile(backend="aot_eager")
REAL = [
    model(NEW, pattern="sliding", window=3, cache="static", updates=2, spare=5, padding="left"),
    model(NEW, pattern="chunked", window=5, cache="dynamic", implementation="eager"),
    replace(model(sequences=3, pattern="sliding"), training=Training(), compile=EAGERLY),
    replace(model(block=3, padding="right", implementation="eager"), training=Training()),
    replace(model(pattern="bidirectional_sliding", padding="left"), compile=EAGERLY),
    replace(model(made="outside", mask=masks.PrefixLM(prefix=5), overlay="or"), compile=EAGERLY),
]


@pytest.mark.slow
@needs_systems
def test_the_package_itself_passes(real: Executor) -> None:
    assert real.environment["transformers"].count(".") == 2
    for program in REAL:
        outcome = real.run_programs([program])[0]
        assert outcome.status == "passed", (program, outcome)


@pytest.mark.slow
@needs_systems
def test_a_mask_that_hides_too_much_is_found(real: Executor, tmp_path: Any) -> None:
    fault = tmp_path / "fault.py"
    fault.write_text(
        "from transformers import masking_utils\n"
        "masking_utils.sliding_window_overlay = lambda window: (\n"
        "    lambda b, h, q, kv: kv > q - window + 1\n"
        ")\n"
    )
    from tests.support.preload import preload

    preload(real, fault)
    try:
        outcome = real.run_programs([model(pattern="sliding")])[0]
    finally:
        preload(real)
    assert outcome.failure is not None and outcome.failure.kind == "wrong_result"
