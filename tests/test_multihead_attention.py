"""`torch.nn.MultiheadAttention` as a kernel: its renderings mean what the module computes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import MultiheadAttention
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.program import Call, Compile, Input, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from tests.support.rendered import assert_means_itself, eagerly, load, results

SHAPE = Shape(batch=3, q_heads=4, kv_heads=4, q_len=7, kv_len=7, head_dim=8)
FAST = "_native_multi_head_attention"
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def mha(mask: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=MultiheadAttention(**spec), shape=SHAPE, mask=mask)


def by_function(**spec: Any) -> Program:
    return mha(called="function", batch_first=False, **spec)


ALONE = replace(SHAPE, batch=1)
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
    "bias key": replace(
        mha(masks.Documents(), add_bias_kv=True, add_zero_attn=True, mode="train"),
        training=Training(),
    ),
    "hidden but for the bias key": mha(
        masks.AllFalse(), add_bias_kv=True, key_padding="bool", need_weights="averaged"
    ),
    "biased": mha(masks.Tree(), mask_form="biased", key_padding="float", self_attention=True),
    "function": replace(
        by_function(separate_weights=True, key_padding="bool", mode="train"), training=Training()
    ),
    "static": replace(
        by_function(static="both", need_weights="heads", separate_weights=True, mode="train"),
        training=Training(),
    ),
    "static key": by_function(static="key", bias=False, add_zero_attn=True),
    "unbatched": replace(
        mha(
            masks.Causal(), unbatched=True, key_padding="bool", mask_rank=3, need_weights="averaged"
        ),
        shape=ALONE,
    ),
    "unbatched by itself": replace(mha(self_attention=True, unbatched=True), shape=ALONE),
    "fast, nested": mha(self_attention=True, nested=True),
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
    drawn = generate(11, 30, profile="multihead_attention")
    assert all(isinstance(program.kernel, MultiheadAttention) for program in drawn)
    for program in drawn:
        if not hints(program):
            assert_means_itself(eagerly(program))


def hints(program: Program) -> bool:
    """Whether it is to be refused, or meets a fault of torch: its causal mask hides the key that
    `add_bias_kv` or `add_zero_attn` adds (F.multi_head_attention_forward drops attn_mask)."""
    kernel = program.kernel
    assert isinstance(kernel, MultiheadAttention)
    extra_key = kernel.add_bias_kv or kernel.add_zero_attn
    return kernel.is_causal and (program.mask is None or extra_key)


def test_nested_entries_are_as_long_as_padding_leaves_them() -> None:
    nested, padded = (
        mha(self_attention=True, **spec) for spec in ({"nested": True}, {"key_padding": "bool"})
    )
    [first], [second] = results(nested, "attention"), results(padded, "attention")
    for entry, kept in enumerate((5, 3, 7)):
        assert (first["out"][entry, kept:] == 0).all()
        torch.testing.assert_close(first["out"][entry, :kept], second["out"][entry, :kept])


def test_static_keys_have_a_gradient_and_their_weights_have_none() -> None:
    [result] = results(PROGRAMS["static"], "attention")
    assert {"dk", "dv", "dq_weight"} <= result.keys()
    assert not {"dk_weight", "dv_weight"} & result.keys()
    assert result["dk"].abs().max() > 0


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
    drawn = generate(12, 30, profile="multihead_attention")
    for program in drawn:
        if not hints(program):
            results(eagerly(program), "attention")
    assert len(taken) > 7


def test_a_hint_without_a_mask_is_refused_by_design() -> None:
    program = mha(mode="train", is_causal=True)
    module = load(program)
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
        (mha(masks.Documents(), key_padding="bool"), "kernel.key_padding"),
        (mha(masks.Causal(), mask_form="biased", is_causal=True), "kernel.is_causal"),
        (mha(static="key"), "kernel.static"),
        (mha(separate_weights=True), "kernel.separate_weights"),
        (mha(called="function"), "kernel.batch_first"),
        (by_function(static="key", add_bias_kv=True), "kernel.add_bias_kv"),
        (by_function(static="value", self_attention=True), "kernel.static"),
        (replace(by_function(static="value"), shape=WIDE), "kernel.static"),
        (mha(unbatched=True), "shape.batch"),
        (mha(nested=True), "kernel.self_attention"),
        (mha(masks.Causal(), nested=True, self_attention=True), "mask"),
        (replace(mha(nested=True, self_attention=True), compile=Compile()), "compile"),
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
        ("bias_kv_gradient", "dbias_v"),
    ],
)
def test_drawn_programs_find_planted_faults(
    fault: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("multi_head_attention_forward", "_in_projection_packed"):  # to be put back
        monkeypatch.setattr(F, name, getattr(F, name))
    planted: dict[str, Any] = {}
    [file] = BENCHMARKS.glob(f"planted_m*/{fault}.py")
    exec(compile(file.read_text(), fault, "exec"), planted)
    drawn = (p for p in generate(11, 60, profile="multihead_attention") if not hints(p))
    try:
        with pytest.raises(AssertionError, match=f"^{result}:"):
            for program in drawn:
                assert_means_itself(eagerly(program))
    finally:
        if "library" in planted:
            planted["library"]._destroy()
    assert_means_itself(PROGRAMS["fast, padded"])
