"""torch's transformer layers as a kernel: their renderings mean what the modules compute."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from attnfuzz.generators.kernels.specs import TransformerLayer
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.program import Call, Compile, Input, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from tests.support.rendered import assert_means_itself, eagerly, results

SHAPE = Shape(batch=3, q_heads=4, kv_heads=4, q_len=7, kv_len=7, head_dim=4)
CROSS = replace(SHAPE, kv_len=5)
TRAINED = Training(wrt=("q",))
FAST = "_transformer_encoder_layer_fwd"
NESTED = "_nested_tensor_from_mask"
HEAD_DIM = "shape.head_dim"
FAULTS = Path(__file__).parent.parent / "benchmarks" / "planted_modules"


def encoder(mask: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=TransformerLayer(**spec), shape=SHAPE, mask=mask)


def decoder(mask: masks.Mask | None = None, **spec: Any) -> Program:
    return replace(encoder(mask, layer="decoder", **spec), shape=CROSS)


def transformer(mask: masks.Mask | None = None, **spec: Any) -> Program:
    spec = {"num_layers": 1, "final_norm": True} | spec
    return replace(decoder(mask, **spec), kernel=TransformerLayer(layer="transformer", **spec))


PROGRAMS = {
    "fast": encoder(),
    "fast, gelu": encoder(masks.Causal(), activation="gelu", norm_first=True),
    "fast, a module": encoder(activation="gelu", activation_module=True),
    "silu": encoder(num_layers=1, activation="silu", key_padding=True),
    "tanh's gelu": encoder(activation="gelu_tanh", activation_module=True, mode="train"),
    "a decoder's own module": decoder(activation="silu", activation_module=True),
    "fast, both masks": encoder(masks.Tree(), key_padding=True, mask_rank=3),
    "fast, float": encoder(masks.Causal(), mask_form="float", is_causal="false"),
    "fast, given nested": encoder(nested=True, norm_first=True),
    "fast, made nested": encoder(num_layers=2, key_padding=True, final_norm=True),
    "fast, made nested unchecked": encoder(num_layers=1, key_padding=True, mask_check=False),
    "fast, stack": encoder(masks.Causal(), num_layers=3, is_causal="true"),
    "not nested": encoder(
        num_layers=2, key_padding=True, enable_nested_tensor=False, bias=False, activation="gelu"
    ),
    "biased": encoder(masks.Tree(), mask_form="biased", key_padding=True, mode="train"),
    "trained": replace(
        encoder(masks.Causal(), is_causal="true", norm_first=True, mode="train"), training=TRAINED
    ),
    "trained stack": replace(
        encoder(num_layers=2, key_padding=True, final_norm=True, batch_first=False),
        training=TRAINED,
    ),
    "trained without bias": replace(
        decoder(masks.Causal(), bias=False, activation="gelu", num_layers=1, final_norm=True),
        training=Training(wrt=("k",)),
    ),
    "decoder": decoder(masks.Causal(), memory_mask=True, memory_padding=True, is_causal="true"),
    "decoder, float": decoder(
        masks.Causal(), mask_form="biased", memory_mask=True, memory_padding=True, key_padding=True
    ),
    "decoder, hint": decoder(memory_mask=True, memory_is_causal=True, norm_first=True),
    "decoders": decoder(masks.Documents(per_batch=True), mask_rank=3, num_layers=2),
    "square": decoder(masks.Causal(), mask_form="square", num_layers=1, is_causal="true"),
    "fast, transformer": transformer(masks.Causal(), source_mask=True, memory_mask=True),
    "fast, made nested in a transformer": transformer(
        masks.Causal(), num_layers=2, source_padding=True, memory_padding=True, key_padding=True
    ),
    "transformer": transformer(
        masks.Causal(),
        mask_form="square",
        is_causal="true",
        source_mask=True,
        norm_first=True,
        source_padding=True,
        batch_first=False,
    ),
    "trained transformer": replace(
        transformer(bias=False, activation="gelu", source_padding=True, mode="train"),
        training=Training(wrt=("k",)),
    ),
    "calls": replace(
        encoder(masks.Causal(), key_padding=True, num_layers=2),
        calls=(Call(batch=1, q_len=3, kv_len=3), Call(batch=2, q_len=9, kv_len=9)),
    ),
    "calls of a decoder": replace(
        decoder(masks.Causal(), memory_padding=True),
        calls=(Call(batch=1, q_len=3, kv_len=8), Call(batch=2, q_len=9, kv_len=2)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_module_computes_what_the_reference_means(name: str) -> None:
    assert_means_itself(PROGRAMS[name])
    assert load_program(dump_program(PROGRAMS[name])) == PROGRAMS[name]


@cache
def layers(seed: int, count: int) -> list[Program]:
    """Drawn programs, uncompiled, without those that meet a fault of torch: pytorch#118628, a
    float mask that the fast path takes for a bool one; activations that are modules, in the
    decoders of a stack (`3851f2cb`) or on the fast path (`5938ee97`)."""
    kernels = ((program, program.kernel) for program in generate(seed, count, profile="modules"))
    return [
        eagerly(program)
        for program, kernel in kernels
        if isinstance(kernel, TransformerLayer)
        and kernel.mask_form != "biased"
        and (kernel.activation == "relu" or not kernel.activation_module)
    ]


def test_drawn_programs_mean_what_the_module_computes() -> None:
    drawn = layers(11, 40)
    assert len(drawn) > 8
    for program in drawn:
        assert_means_itself(program)


def test_evaluated_encoders_take_the_fast_path_and_make_nested_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []

    def counting(name: str) -> Any:
        original = getattr(torch, name)

        def counted(*args: Any, **options: Any) -> Any:
            taken.append(name)
            return original(*args, **options)

        return counted

    for name in (FAST, NESTED):
        monkeypatch.setattr(torch, name, counting(name))
    for name, program in PROGRAMS.items():
        results(program, "attention")
        assert (NESTED in taken) is ("made nested" in name), name
        if not name.startswith("calls"):
            assert (FAST in taken) is name.startswith("fast"), name
        taken.clear()


def test_each_layer_of_a_stack_has_its_own_weights() -> None:
    [result] = results(PROGRAMS["trained stack"], "attention")
    first, second = result["din_weight"]
    assert first.abs().max() > 0
    assert second.abs().max() > 0
    assert not torch.equal(first, second)


def test_layer_norms_are_trained_in_whole_precision_alone() -> None:
    trained = replace(encoder(mode="train"), training=TRAINED)
    assert "dnorms" in results(trained, "attention")[0]
    half = Input(dtype="bfloat16")
    [result] = results(replace(trained, q=half, k=half, v=half), "attention")
    assert "dnorms" not in result
    assert "din_weight" in result


def test_relu_is_trained_away_from_its_kink() -> None:
    """Nothing that goes into it is near 0, and it passes some on and some not."""
    seen: list[torch.Tensor] = []
    original = F.relu

    def watched(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.detach())
        return original(x)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(F, "relu", watched)
        for program in layers(11, 20):
            if program.training is not None:
                results(program, "reference")
        results(PROGRAMS["trained"], "reference")
    assert all(x.abs().min() > 1 for x in seen)
    assert any((x > 0).any() and (x < 0).any() for x in seen)


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (replace(encoder(), autocast="bfloat16"), "autocast"),
        (replace(encoder(), k=Input(dtype="float64")), "k.dtype"),
        (replace(encoder(), shape=CROSS), "shape.kv_len"),
        (replace(encoder(), training=Training()), "training.wrt"),
        (replace(decoder(), training=Training(wrt=("v",))), "training.wrt"),
        (replace(decoder(), shape=replace(CROSS, kv_heads=2)), "kernel.layer"),
        (replace(encoder(bias=False), training=TRAINED), "kernel.activation"),
        (replace(encoder(), shape=replace(SHAPE, q_heads=1, kv_heads=1, head_dim=1)), HEAD_DIM),
        (encoder(activation="gelu_tanh"), "kernel.activation_module"),
        (encoder(masks.AllFalse()), "mask"),
        (encoder(masks.Documents(per_batch=True)), "kernel.mask_rank"),
        (encoder(masks.Documents(), key_padding=True), "kernel.key_padding"),
        (encoder(masks.Tree(), is_causal="true"), "kernel.is_causal"),
        (encoder(is_causal="true"), "kernel.is_causal"),
        (encoder(mask_form="biased"), "kernel.mask_form"),
        (encoder(final_norm=True), "kernel.final_norm"),
        (encoder(mask_check=False), "kernel.mask_check"),
        (encoder(memory_mask=True), "kernel.memory_mask"),
        (decoder(memory_is_causal=True), "kernel.memory_is_causal"),
        (decoder(num_layers=1, enable_nested_tensor=False), "kernel.enable_nested_tensor"),
        (replace(encoder(masks.Causal(), num_layers=1), compile=Compile()), "kernel.is_causal"),
        (replace(encoder(num_layers=1, mask_check=False), compile=Compile()), "kernel.mask_check"),
        (replace(encoder(nested=True), compile=Compile()), "compile"),
        (encoder(nested=True, key_padding=True), "kernel.key_padding"),
    ],
)
def test_what_the_module_does_not_take_is_a_problem(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_programs_are_simplified_to_valid_ones_of_the_module() -> None:
    every = candidates(replace(PROGRAMS["calls"], compile=None))
    kept = [one for one in every if isinstance(one.kernel, TransformerLayer)]
    assert encoder().kernel in [one.kernel for one in kept]
    for one in kept[:10]:
        assert_means_itself(one)


def test_a_transformer_is_simplified_to_one_of_its_stacks() -> None:
    program = Program(
        kernel=TransformerLayer(
            layer="transformer", num_layers=1, final_norm=True,
            source_padding=True, memory_padding=True,
        )
    )  # fmt: skip
    kernels = [one.kernel for one in candidates(program)]
    stack = TransformerLayer(num_layers=1, final_norm=True)
    assert replace(stack, key_padding=True) in kernels
    assert replace(stack, layer="decoder", memory_padding=True) in kernels
    alone = Program(kernel=TransformerLayer(layer="decoder", key_padding=True))
    assert TransformerLayer(key_padding=True) in [one.kernel for one in candidates(alone)]


NEEDED: dict[str, dict[str, Any]] = {
    "fast_path_norm_first": {"norm_first": True, "mode": "eval"},
    "nested_last_token": {"key_padding": True, "enable_nested_tensor": True, "mode": "eval"},
    "decoder_memory_padding": {"memory_mask": True, "memory_padding": True},
}
"""What a program has to have to meet a planted fault, but not all that it has to."""


@pytest.mark.parametrize("fault", NEEDED)
def test_drawn_programs_find_planted_faults(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((torch, NESTED), (torch.nn.TransformerDecoderLayer, "_mha_block")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be put back
    drawn = [
        program
        for program in layers(11, 600)
        if all(getattr(program.kernel, name) == value for name, value in NEEDED[fault].items())
    ]
    planted: dict[str, Any] = {}
    exec(compile((FAULTS / f"{fault}.py").read_text(), fault, "exec"), planted)
    try:
        with pytest.raises(AssertionError, match="^out:"):
            for program in sorted(drawn, key=lambda p: p.shape.batch * p.shape.q_len):
                assert_means_itself(program)
    finally:
        if "library" in planted:
            planted["library"]._destroy()
    assert_means_itself(PROGRAMS["fast, both masks"])
