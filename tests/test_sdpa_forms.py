"""SDPA of other ranks, masks and biases, dropout, and `varlen_attn`: what they are judged by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import CausalBias

from attnfuzz.actors.child.to_device import ToDevice
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.generators.kernels.specs import Handwritten, Sdpa, Varlen
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Modes,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.shrink.candidates import candidates
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import FEATURES, Swarm
from tests.support.rendered import calls_of, eagerly, load

SHAPE = Shape(batch=2, q_heads=4, kv_heads=2, q_len=7, kv_len=12, head_dim=8, v_head_dim=4)
FAULTS = Path(__file__).parent.parent / "benchmarks" / "planted_sdpa"
FORMS = ("sdpa.ranks", "sdpa.mask_tensor", "sdpa.bias", "dropout")
PER_HEAD = masks.Documents(per_batch=True)


def results(program: Program, fn: str) -> list[dict[str, torch.Tensor]]:
    """What each call gives in float64."""
    module, every = load(program), []
    for call in calls_of(module):
        args = [
            t.detach().double().requires_grad_(t.requires_grad)
            if t.is_floating_point() and not isinstance(t, CausalBias) else t
            for t in module.inputs(*call)
        ]  # fmt: skip
        every.append(module.run(getattr(module, fn), tuple(args)))
    return every


def assert_means_itself(program: Program) -> None:
    pairs = zip(results(program, "attention"), results(program, "reference"), strict=True)
    for actual, expected in pairs:
        assert actual.keys() == expected.keys()
        for name in actual:
            torch.testing.assert_close(
                actual[name], expected[name], rtol=1e-6, atol=1e-9, msg=f"{name}: {program}"
            )


def sdpa(mask: masks.Mask | None = None, shape: Shape = SHAPE, **spec: Any) -> Program:
    return Program(
        kernel=Sdpa(**{"enable_gqa": shape.q_heads != shape.kv_heads, **spec}),
        shape=shape, mask=mask, training=Training(),
    )  # fmt: skip


ONE = replace(SHAPE, batch=1, q_heads=1, kv_heads=1)
BROADCAST = ("b", "h", "q_idx")
PROGRAMS = {
    "two dimensions": sdpa(masks.Causal(), ONE, input_rank=2, mask_rank=3),
    "three": sdpa(PER_HEAD, broadcast=("h",), input_rank=3),
    "three, mask of each": sdpa(PER_HEAD, broadcast=(), input_rank=3, mask_form="float"),
    "three, mask of all": sdpa(masks.Causal(), input_rank=3),
    "three, no batch": sdpa(masks.Causal(), input_rank=3, broadcast=("b",), mask_rank=3),
    "three, mask of one": sdpa(
        masks.KeyPadding(per_batch=False), broadcast=BROADCAST, input_rank=3, mask_rank=1
    ),
    "five": sdpa(PER_HEAD, broadcast=("h",), input_rank=5, enable_gqa=False),
    "five, mask of each": sdpa(PER_HEAD, broadcast=(), input_rank=5),
    "five, no batch": sdpa(masks.Causal(), input_rank=5, broadcast=("b",), mask_rank=3),
    "five, expanded": sdpa(
        masks.Causal(), input_rank=5, mask_layout="expanded", enable_gqa=False, mask_rank=3
    ),
    "three, expanded": sdpa(masks.Causal(), input_rank=3, mask_layout="expanded"),
    "numbers": sdpa(
        masks.AllTrue(), mask_form="float", mask_bias=True, mask_layout="transposed",
        broadcast=("b",), mask_requires_grad=True,
    ),
    "strided": sdpa(masks.Causal(), mask_layout="strided", mask_form="float", mask_bias=True),
    "least number": replace(
        sdpa(masks.BlockMap(block=2), mask_form="float", mask_fill="finfo_min"), training=None
    ),
    "upper left": replace(
        sdpa(masks.Causal(), mask_form="upper_left"), calls=(Call(batch=1, q_len=5, kv_len=3),)
    ),
    "lower right": replace(
        sdpa(masks.Causal(offset=5), mask_form="lower_right", input_rank=3),
        calls=(Call(batch=1, q_len=4, kv_len=9),),
    ),
    "dropout": sdpa(masks.Causal(), dropout_p=0.3, input_rank=3),
    "everything dropped": sdpa(dropout_p=1.0),
    "dropout, checkpoint": replace(
        sdpa(masks.Documents(), dropout_p=0.1, mask_form="float", mask_bias=True),
        surround=Surround(checkpoint="full"),
    ),
    "dropout by hand": Program(
        kernel=Handwritten(dropout_p=0.2, gqa="expand", product="bmm", masking="add"), shape=SHAPE,
        mask=masks.Causal(), training=Training(grad_layout="expanded"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_form_computes_what_the_reference_means(name: str) -> None:
    assert_means_itself(PROGRAMS[name])
    assert load_program(dump_program(PROGRAMS[name])) == PROGRAMS[name]


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (sdpa(masks.KeyPadding(), broadcast=("h", "q_idx"), mask_rank=1), "kernel.mask_rank"),
        (sdpa(input_rank=2), "shape.batch"),
        (sdpa(masks.Causal(), mask_form="lower_right"), "mask"),
        (sdpa(masks.Causal(offset=5), mask_form="upper_left"), "kernel.mask_form"),
        (sdpa(masks.Causal(), mask_form="upper_left", mask_layout="strided"), "kernel.mask_layout"),
        (sdpa(masks.Causal(), mask_bias=True), "kernel.mask_bias"),
        (sdpa(masks.Causal(), mask_fill="finfo_min"), "kernel.mask_fill"),
        (
            replace(
                sdpa(masks.Causal(), mask_form="float", mask_fill="finfo_min"),
                autocast="bfloat16",
            ),
            "kernel.mask_fill",
        ),
        (replace(PROGRAMS["dropout"], q=Input(values="huge")), "q.values"),
        (replace(PROGRAMS["dropout"], surround=Surround(rope=True)), "surround"),
        (replace(PROGRAMS["dropout"], autocast="bfloat16"), "autocast"),
        (sdpa(dropout_p=0.1, scale=100.0), "kernel.scale"),
        (
            sdpa(masks.Causal(), dropout_p=0.1, mask_form="float", mask_dtype="float32"),
            "kernel.mask_dtype",
        ),
    ],
)
def test_what_a_form_does_not_go_with_is_a_problem(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_a_profile_draws_every_form_and_others_without_the_features_none() -> None:
    drawn = [p.kernel for p in generate(3, 900, swarm=Swarm("sdpa_forms"))]
    of_sdpa = [kernel for kernel in drawn if isinstance(kernel, Sdpa)]
    for name in (
        "mask_form",
        "mask_rank",
        "mask_layout",
        "mask_dtype",
        "mask_bias",
        "mask_fill",
        "input_rank",
    ):
        found = {getattr(kernel, name) for kernel in of_sdpa}
        assert len(found) == {"mask_form": 5, "mask_dtype": 2, "mask_bias": 2, "mask_fill": 2}.get(
            name, 4
        ), name
    assert {type(k).__name__ for k in drawn if getattr(k, "dropout_p", 0)} == {
        "Sdpa", "Handwritten",
    }  # fmt: skip
    without = tuple(name for name in FEATURES if name not in FORMS)
    plain = Sdpa()
    for program in generate(3, 200, swarm=Swarm("eager", without)):
        kernel = program.kernel
        assert getattr(kernel, "dropout_p", 0) == 0
        if isinstance(kernel, Sdpa):
            for name in ("mask_layout", "mask_dtype", "mask_bias", "mask_fill", "input_rank"):
                assert getattr(kernel, name) == getattr(plain, name)
            assert kernel.mask_form in ("is_causal", "bool", "float") and kernel.mask_rank > 1


def test_drawn_dropout_is_within_what_is_judged() -> None:
    drawn = [p for p in generate(4, 150, swarm=Swarm("sdpa_forms")) if p.kernel.kind != "varlen"]
    dropped = [p for p in drawn if getattr(p.kernel, "dropout_p", 0)]
    assert len(dropped) > 10
    for program in dropped[:15]:
        if getattr(program.kernel, "fill", "") != "finfo_min":  # of float32, not of float64
            plain = eagerly(program)
            for actual in results(plain, "attention"):
                assert float(actual["excess"]) == 0, program


def planted(fault: str) -> None:
    exec(compile((FAULTS / f"{fault}.py").read_text(), fault, "exec"), {})


@pytest.mark.parametrize(
    ("fault", "name", "wrong"),
    [
        ("bias_lower_right", "lower right", "out"),
        ("mask_of_three_dimensions", "three, mask of each", "out"),
        ("dropout_scale", "dropout by hand", "out"),
        ("dropout_share", "dropout by hand", "excess"),
    ],
)
def test_a_planted_fault_shows_in_its_form_alone(
    fault: str, name: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, attribute in (
        (F, "dropout"), (F, "scaled_dot_product_attention"), (CausalBias, "_lower_right")
    ):  # fmt: skip
        monkeypatch.setattr(at, attribute, getattr(at, attribute))  # to be put back
    planted(fault)
    with pytest.raises(AssertionError, match=f"^{wrong}:"):
        assert_means_itself(long(PROGRAMS[name]))
    assert_means_itself(Program())
    assert_means_itself(Program(kernel=Handwritten(dropout=True)))


def long(program: Program) -> Program:
    """With enough weights to tell half of them from all."""
    shape = replace(program.shape, q_len=95, kv_len=100)
    return program if program.calls else replace(program, shape=shape)


class DropsOthersForV(torch.autograd.Function):
    """Dropout whose backward drops other weights than its forward."""

    @staticmethod
    def forward(ctx: Any, weights: torch.Tensor, p: float) -> torch.Tensor:
        ctx.p = p
        return weights * (torch.rand_like(weights) >= p) / (1 - p)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * (torch.rand_like(gradient) >= ctx.p) / (1 - ctx.p), None


def test_a_backward_that_drops_other_weights_has_wrong_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faulty(weights: torch.Tensor, p: float) -> torch.Tensor:
        result: torch.Tensor = DropsOthersForV.apply(weights, p)
        return result

    monkeypatch.setattr(F, "dropout", faulty)
    with pytest.raises(AssertionError, match="^dq:"):
        assert_means_itself(PROGRAMS["dropout by hand"])


def test_a_bias_stays_what_it_is_on_its_way_to_a_device() -> None:
    bias = load(PROGRAMS["lower right"]).inputs(1, 4, 9)[3]
    assert ToDevice("cpu")(bias) is bias and bias.seq_len_kv == 9


def test_forms_are_simplified_to_plain_sdpa() -> None:
    for name in ("lower right", "numbers", "dropout", "three, mask of one"):
        assert any(one.kernel == Sdpa() for one in candidates(PROGRAMS[name])), name


HALF = Input(dtype="bfloat16")
VARLEN = Program(
    kernel=Varlen(window=(-1, 0), sequences=3, enable_gqa=True),
    shape=replace(SHAPE, batch=1, v_head_dim=None), q=HALF, k=HALF, v=HALF,
)  # fmt: skip


def test_varlen_is_drawn_for_cards_alone() -> None:
    takes = {name for name, target in TARGETS.items() if target.unfit(VARLEN) is None}
    assert {"cuda", "virtual-sm90"} <= takes and not {"cpu", "npu"} & takes
    drawn = generate(3, 60, profile="varlen")
    assert all(isinstance(p.kernel, Varlen) and problems(p) == [] for p in drawn)
    assert "window_size=(-1, 0)" in source(VARLEN)
    assert any(p.kernel.out for p in drawn if isinstance(p.kernel, Varlen))


def test_varlen_writes_into_a_tensor_without_a_gradient() -> None:
    written = replace(VARLEN, kernel=Varlen(out=True, enable_gqa=True))
    assert problems(written) == []
    assert problems(replace(written, training=Training())) != []
    text = " ".join(source(written).split())
    assert "varlen_attn_out( torch.empty_like(q[0].transpose(0, 1)), q[0].transpose" in text
    assert any(p.kernel == Varlen(enable_gqa=True) for p in candidates(written))


def test_the_reference_of_varlen_is_attention_of_each_sequence() -> None:
    module = load(VARLEN)
    q, k, v, *cuts = module.inputs()
    out = module.reference(q.double(), k.double(), v.double(), *cuts)
    for i in range(3):
        rows, columns = (slice(int(cut[i]), int(cut[i + 1])) for cut in cuts)
        part = (q[:, :, rows].double(), k[:, :, columns].double(), v[:, :, columns].double())
        shape = (part[0].shape[2], part[1].shape[2])
        seen = torch.ones(shape, dtype=torch.bool).tril(shape[1] - shape[0])
        expected = F.scaled_dot_product_attention(*part, attn_mask=seen, enable_gqa=True)
        torch.testing.assert_close(out[:, :, rows], expected)


def test_a_bias_warns_of_kernels_that_are_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.attention, "WARN_FOR_UNFUSED_KERNELS", False)
    biased = Program(
        shape=SHAPE,
        mask=masks.Causal(offset=5),
        kernel=Sdpa(mask_form="lower_right", enable_gqa=True),
        modes=Modes(warn_for_unfused_kernels=True),
    )
    assert problems(biased) == []
    assert problems(replace(biased, compile=Compile())) != []
    module = load(biased)
    with pytest.warns(UserWarning, match="Efficient attention can't be used because"):
        module.run(module.attention, module.inputs())
    drawn = [p.modes for p in generate(1, 400, profile="sdpa_forms")]
    assert sum(modes.warn_for_unfused_kernels for modes in drawn) > 1
