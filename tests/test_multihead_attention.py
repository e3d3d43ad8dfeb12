"""`torch.nn.MultiheadAttention` as a kernel: its renderings mean what the module computes."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import MultiheadAttention
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.program import Call, Input, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate

SHAPE = Shape(batch=3, q_heads=4, kv_heads=4, q_len=7, kv_len=7, head_dim=8)
FAST = "_native_multi_head_attention"
FAULTS = Path(__file__).parent.parent / "benchmarks" / "planted_multihead_attention"


def module_of(program: Program) -> ModuleType:
    assert problems(program) == []
    module = ModuleType("rendered_program")
    sys.modules[module.__name__] = module
    exec(compile(source(program), "<program>", "exec"), module.__dict__)
    return module


def in_float64(args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(
        t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t
        for t in args
    )


def results(program: Program, fn: str) -> list[dict[str, torch.Tensor]]:
    module = module_of(program)
    shapes: list[tuple[int, ...]] = list(getattr(module, "CALLS", [()]))
    every = []
    for shape in shapes:
        args = in_float64(module.inputs(*shape))
        torch.manual_seed(1)
        every.append(module.run(getattr(module, fn), args))
    return every


def assert_means_itself(program: Program) -> None:
    pairs = zip(results(program, "attention"), results(program, "reference"), strict=True)
    for actual, expected in pairs:
        assert actual.keys() == expected.keys()
        for name in actual:
            torch.testing.assert_close(
                actual[name], expected[name], rtol=1e-9, atol=1e-9, msg=f"{name}: {program}"
            )


def mha(mask: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=MultiheadAttention(**spec), shape=SHAPE, mask=mask)


WIDE = replace(SHAPE, kv_heads=2, kv_len=5, v_head_dim=3)
PROGRAMS = {
    "plain": mha(),
    "fast": mha(self_attention=True),
    "fast, averaged": mha(masks.Causal(), self_attention=True, need_weights="averaged"),
    "fast, padded": mha(self_attention=True, key_padding="bool", need_weights="heads"),
    "other widths": replace(mha(need_weights="heads"), shape=WIDE),
    "length first": mha(masks.Causal(), batch_first=False, is_causal=True),
    "mask of entries": mha(masks.Documents(per_batch=True), mask_rank=3),
    "float masks": mha(masks.Causal(), mask_form="float", key_padding="float"),
    "zero key": mha(add_zero_attn=True, need_weights="averaged", bias=False, mode="train"),
    "trained": replace(
        mha(masks.Causal(), need_weights="averaged", mode="train"), training=Training()
    ),
    "calls": replace(
        mha(masks.Causal(), key_padding="bool"),
        calls=(Call(batch=1, q_len=3, kv_len=4), Call(batch=2, q_len=9, kv_len=9)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_module_computes_what_the_reference_means(name: str) -> None:
    assert_means_itself(PROGRAMS[name])
    assert load_program(dump_program(PROGRAMS[name])) == PROGRAMS[name]


def test_drawn_programs_mean_what_the_module_computes() -> None:
    drawn = generate(11, 60, profile="multihead_attention")
    assert all(isinstance(program.kernel, MultiheadAttention) for program in drawn)
    for program in drawn:
        if not hints(program):
            assert_means_itself(replace(program, compile=None))


def hints(program: Program) -> bool:
    """Whether it is to be refused."""
    return program.mask is None and getattr(program.kernel, "is_causal", False)


def test_an_evaluated_module_of_its_own_input_takes_the_fast_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    original = getattr(torch, FAST)

    def counted(*args: Any) -> Any:
        taken.append(1)
        return original(*args)

    monkeypatch.setattr(torch, FAST, counted)
    for name in PROGRAMS:
        results(PROGRAMS[name], "attention")
        assert bool(taken) is name.startswith("fast"), name
        taken.clear()
    drawn = generate(12, 100, profile="multihead_attention")
    for program in drawn:
        if not hints(program):
            results(replace(program, compile=None), "attention")
    assert len(taken) > 15


def test_a_hint_without_a_mask_is_refused_by_design() -> None:
    program = mha(mode="train", is_causal=True)
    module = module_of(program)
    with pytest.raises(RuntimeError) as raised:
        module.attention(*module.inputs())
    text = f"RuntimeError: {raised.value}"
    assert any(re.search(refusal.pattern, text) for refusal in for_program(program))
    assert not any(re.search(refusal.pattern, text) for refusal in for_program(mha()))


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (replace(mha(), packed="kv"), "packed"),
        (replace(mha(), k=Input(dtype="float64")), "k.dtype"),
        (replace(mha(self_attention=True), shape=WIDE), "shape.kv_len"),
        (replace(mha(self_attention=True), training=Training()), "training.wrt"),
        (mha(masks.AllFalse()), "mask"),
        (mha(masks.Documents(per_batch=True)), "kernel.mask_rank"),
        (mha(masks.Causal(offset=1), is_causal=True), "kernel.is_causal"),
        (mha(masks.Causal(), key_padding="float"), "kernel.key_padding"),
    ],
)
def test_what_the_module_does_not_take_is_a_problem(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_programs_are_simplified_to_valid_ones_of_the_module() -> None:
    kept = [
        one for one in candidates(PROGRAMS["calls"]) if isinstance(one.kernel, MultiheadAttention)
    ]
    assert mha().kernel in [one.kernel for one in kept]
    for one in kept[:20]:
        assert_means_itself(one)


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        ("fast_path_key_padding", "out"),
        ("averaged_weights", "weights"),
        ("key_weight_gradient", "din_weight"),
    ],
)
def test_drawn_programs_find_planted_faults(
    fault: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("multi_head_attention_forward", "_in_projection_packed"):  # to be put back
        monkeypatch.setattr(F, name, getattr(F, name))
    planted: dict[str, Any] = {}
    exec(compile((FAULTS / f"{fault}.py").read_text(), fault, "exec"), planted)
    drawn = (p for p in generate(11, 60, profile="multihead_attention") if not hints(p))
    try:
        with pytest.raises(AssertionError, match=f"^{result}:"):
            for program in drawn:
                assert_means_itself(replace(program, compile=None))
    finally:
        if "library" in planted:
            planted["library"]._destroy()
    assert_means_itself(PROGRAMS["fast, padded"])
