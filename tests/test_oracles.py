"""The oracles one by one, on tensors."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed._local_tensor import LocalTensor

from attnfuzz.actors.child import layers, tensors
from attnfuzz.actors.child.outcomes import LONGEST, cut, diff, failure
from attnfuzz.actors.oracles import (
    determinism,
    gradients,
    metadata,
    nan_propagation,
    numbers,
    replicas,
)
from attnfuzz.actors.oracles.expectation import Expectation
from attnfuzz.actors.oracles.noise import Noise
from attnfuzz.actors.oracles.purity import Snapshot

pytestmark = pytest.mark.slow

Function = Callable[..., torch.Tensor]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT * q.size(-1) ** -0.5, dim=-1) @ v


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def forward(fn: Function, args: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    return {"out": fn(*args)}


def training(fn: Function, args: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    out = fn(*args)
    grads = torch.autograd.grad(out, args, torch.ones_like(out) + torch.arange(out.size(-1)))
    return {"out": out, **dict(zip(["dq", "dk", "dv"], grads, strict=True))}


def expectation(
    args: tuple[Any, ...], run: Callable[..., Any] = forward, reference: Function = attention
) -> Expectation:
    program: Any = SimpleNamespace(run=run, reference=reference, inputs=lambda call: args)
    return Expectation(program, 0, args, None)


def qkv(
    length: int,
    dtype: torch.dtype,
    scale: float = 1.0,
    *,
    grad: bool = False,
    keys: int | None = None,
) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(length)
    lengths = (length, keys or length, keys or length)
    made = [(torch.randn(2, 2, n, 16) * scale).to(dtype) for n in lengths]
    return tuple(tensor.requires_grad_(grad) for tensor in made)


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("keys", [1, 7, 300])
def test_rounding_is_never_an_error(dtype: torch.dtype, scale: float, keys: int) -> None:
    """The fused kernel against the plain one, forward and backward, in every regime of values."""
    args = qkv(33, dtype, scale, grad=True, keys=keys)
    judgement = numbers.judge(expectation(args, training), training(flash, args))
    assert judgement.diffs == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_error_well_above_rounding_is_one(dtype: torch.dtype) -> None:
    args = qkv(33, dtype)
    actual = {"out": flash(*args).clone()}
    actual["out"][1, 0, 3] += 300 * torch.finfo(dtype).eps * actual["out"].abs().max()
    [found] = numbers.judge(expectation(args), actual).diffs
    assert found["error"] > found["budget"]
    assert "(1, 0, 3," in found["actual"]


def test_cancellation_that_one_run_hides_is_not_an_error() -> None:
    """One key: the gradient of q is exactly 0 in any plain run, while a kernel that takes
    rowsum(dP * P) from dP leaves a rounding error behind."""
    args = qkv(8, torch.float32, grad=True, keys=1)
    wanted = expectation(args, training)
    assert float(wanted.expected["dq"].abs().max()) == 0
    actual = training(attention, args)
    actual["dq"] = torch.full_like(args[0], 5e-7)
    assert numbers.judge(wanted, actual).diffs == []
    actual["dq"] = torch.full_like(args[0], 1e-2)
    assert [found["output"] for found in numbers.judge(wanted, actual).diffs] == ["dq"]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_where_it_should_be(wrong: float) -> None:
    args = qkv(8, torch.float32)
    actual = {"out": attention(*args).clone()}
    actual["out"][0, 0, 0, 0] = wrong
    judgement = numbers.judge(expectation(args), actual)
    assert judgement.nonfinite
    assert judgement.diffs[0]["error"] is None


@pytest.mark.parametrize(("added", "signs"), [(1.0, "456789"), (float("nan"), "N")])
def test_a_map_shows_where_an_output_is_off(added: float, signs: str) -> None:
    args = qkv(100, torch.float32)
    actual = {"out": attention(*args).clone()}
    actual["out"][1, 0, 99, 5] += added
    told = numbers.judge(expectation(args), actual).evidence["error map of out"]
    head, *lines = told.splitlines()
    assert head.startswith("100 x 16:")
    assert lines[:63] == ["." * 16] * 63  # of 64 for 100 rows
    assert lines[63].replace(lines[63][5], ".") == "." * 16 and lines[63][5] in signs


def test_nothing_is_judged_where_the_reference_is_not_finite() -> None:
    def dead_row(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = attention(q, k, v).clone()
        out[0, 0, 0] = float("nan")
        return out

    args = qkv(8, torch.float32)
    wanted = expectation(args, reference=dead_row)
    assert numbers.judge(wanted, {"out": attention(*args)}).diffs == []
    assert wanted.skipped["numbers.out"].startswith("16 of")
    wrong = {"out": attention(*args) * 1.01}
    assert len(numbers.judge(wanted, wrong).diffs) == 1


def test_overflow_of_a_narrow_dtype_is_not_an_error() -> None:
    """Scores near 65504 may overflow in float16, as the order of operations will have it."""
    args = qkv(8, torch.float16, 60.0)
    actual = {"out": torch.full_like(args[0], float("nan"))}
    assert numbers.judge(expectation(args), actual).diffs == []


def test_a_compiled_result_may_be_as_wrong_as_the_eager_one() -> None:
    args = qkv(8, torch.float32)
    right = attention(*args)
    eager, compiled = {"out": right + 4e-6}, {"out": right - 2e-5}
    assert numbers.judge(expectation(args), compiled).diffs
    assert numbers.judge(expectation(args), compiled, eager).diffs == []


def test_a_gradient_of_none_is_one_of_zeros() -> None:
    args = qkv(8, torch.float32)
    wanted = expectation(args)
    wanted.expected["dq"] = None
    assert wanted.yardstick is not None
    wanted.yardstick["dq"] = None
    out = attention(*args)
    assert numbers.judge(wanted, {"out": out, "dq": torch.zeros(3)}).diffs == []
    assert numbers.judge(wanted, {"out": out, "dq": torch.ones(3)}).diffs


def test_what_noise_decides_is_said_to_be_not_judged() -> None:
    args = qkv(8, torch.float32)
    chaotic = expectation(args, reference=lambda q, k, v: torch.where(q - q.clone() > 0, v, -v))
    assert numbers.judge(chaotic, {"out": args[2]}).diffs == []
    assert chaotic.skipped == {"numbers.out": numbers.NOISE_DECIDES}
    plain = expectation(args)
    assert numbers.judge(plain, {"out": args[2]}).diffs and plain.skipped == {}


def test_noise_reaches_the_backward_pass_and_is_seeded() -> None:
    q, k, v = qkv(8, torch.float64, grad=True)

    def draw(seed: int) -> torch.Tensor:
        with Noise(torch.float32, seed):
            return training(attention, (q, k, v))["dk"]

    exact = training(attention, (q, k, v))["dk"]
    deviation = float((draw(1) - exact).abs().max())
    assert 1e-8 < deviation < 1e-4
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def described(tensor: torch.Tensor, name: str = "out", args: Any = ()) -> dict[str, Any]:
    return metadata.describe({name: tensor}, args, ["x"][: len(args)])


@pytest.mark.parametrize(
    ("expected", "actual", "what"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2).mT, ["stride"]),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float64), ["dtype"]),
        (torch.zeros(2, 3), torch.zeros(2, 3, requires_grad=True), ["requires_grad"]),
        (torch.zeros(1, 3), torch.zeros(3, 1).mT, []),
        (torch.zeros(0, 3, 2), torch.zeros(3, 2, 0).permute(2, 0, 1), []),
    ],
)
def test_metadata_of_what_is_returned(
    expected: torch.Tensor, actual: torch.Tensor, what: list[str]
) -> None:
    found = metadata.differences(described(expected), described(actual), 0)
    assert [difference["what"] for difference in found] == what


def test_strides_of_gradients_are_not_promised() -> None:
    expected, actual = torch.zeros(2, 3), torch.zeros(3, 2).mT
    given = (torch.zeros(2, 3),)  # of x
    promised = described(expected, "dx", given), described(actual, "dx", given)
    assert metadata.differences(*promised, 0) == []


def test_sharing_memory_with_an_argument() -> None:
    x = torch.zeros(2, 3)
    found = metadata.differences(described(x.clone(), args=(x,)), described(x[:], args=(x,)), 0)
    assert [(difference["what"], difference["actual"]) for difference in found] == [
        ("aliases", "('x',)")
    ]


def test_a_tensor_of_simulated_ranks_has_the_memory_of_the_first() -> None:
    x = torch.zeros(2, 3)
    ranks = LocalTensor({0: x[:], 1: x.clone()})
    assert described(ranks, args=(x,))["out"]["aliases"] == ("x",)


def test_purity_sees_every_byte_and_restored_values_are_fine() -> None:
    x = torch.zeros(4, 4)
    purity = Snapshot((x[1:, 1:],), ["x"])
    assert purity.differences(0) == []
    x[0, 0] = 1
    assert [found["what"] for found in purity.differences(0)] == ["storage"]
    x[0, 0] = 0
    assert purity.differences(0) == []
    torch.rand(1)
    assert [found["what"] for found in purity.differences(0)] == ["rng_state"]


def test_of_views_of_one_buffer_those_changed_whose_elements_did() -> None:
    buffer = torch.zeros(3, 4)
    q, k, v = buffer
    names = ["q", "k", "v"]
    purity = Snapshot((q, k, v), names)
    k[1] = float("nan")
    assert [found["output"] for found in purity.differences(0)] == ["k"]
    v[0] = 1
    assert [found["output"] for found in purity.differences(0)] == ["k", "v"]
    outside = Snapshot((q[1:], k[1:], v[1:]), names)
    q[0] = 1
    assert [found["output"] for found in outside.differences(0)] == names


def test_the_same_bits() -> None:
    nan = torch.tensor([1.0, float("nan")])
    assert tensors.same_bits(nan, nan.clone())
    assert not tensors.same_bits(nan, torch.tensor([1.0, 2.0]))
    assert determinism.differences({"out": nan}, {"out": nan * 1.0000001}, 0)


def test_the_precision_of_a_computation_is_its_lowest() -> None:
    args = (torch.zeros(1), torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1).double())
    assert tensors.computation_dtype(args, None) == torch.bfloat16
    assert tensors.computation_dtype(args, "float16") == torch.float16


def failed(kind: str, output: str = "out", raised: str | None = None) -> dict[str, Any]:
    what = {"type": raised} if raised else None
    return failure(kind, "check", raised=what, diffs=[diff(output, "value", 1, 2, call=0)])


@pytest.mark.parametrize(
    ("backend", "shows_at", "layer"),
    [
        ("inductor", (), "inductor"),
        ("inductor", ("aot_eager",), "aot_eager"),
        ("inductor", ("eager", "aot_eager"), "dynamo"),
        ("aot_eager", (), "aot_eager"),
        ("eager", (), "dynamo"),
    ],
)
def test_the_first_layer_at_which_it_shows(
    backend: str, shows_at: tuple[str, ...], layer: str
) -> None:
    seen = failed("wrong_result")
    found = layers.blame({"backend": backend}, seen, lambda b: seen if b in shows_at else None)
    assert found == layer


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (failed("wrong_result"), True),
        (failed("wrong_result", "dq"), False),
        (failed("nonfinite"), False),
        (failed("wrong_result", raised="KeyError"), False),
    ],
)
def test_failures_that_are_alike(other: dict[str, Any], alike: bool) -> None:
    assert layers.alike(failed("wrong_result"), other) is alike


def test_evidence_is_cut_in_the_middle() -> None:
    text = cut("a" * LONGEST + "b" * LONGEST)
    assert len(text) <= LONGEST
    assert text.startswith("a")
    assert text.endswith("b")


def test_a_nan_is_lost_where_every_expectation_has_it_alone() -> None:
    expected = torch.tensor([torch.nan, torch.nan, 1.0, torch.nan])
    other = torch.tensor([torch.nan, torch.nan, 1.0, 2.0])
    kept = torch.tensor([torch.nan, torch.nan, torch.nan, 0.0])
    assert nan_propagation.lost([expected, other], kept, 0) == []
    [found] = nan_propagation.lost([expected, other], torch.zeros(4), 3)
    assert (found["what"], found["call"]) == ("nan", 3)
    assert found["actual"] == "0 at (0,) (2 of 4 elements are no NaN)"
    assert nan_propagation.lost([expected, None], torch.zeros(4), 0) == []


def test_the_layout_contract_of_gradients_is_that_of_torch() -> None:
    for leaf in (
        torch.randn(2, 3, 4).transpose(0, 2),
        torch.randn(2, 3, 8)[..., :4],
        torch.randn(3, 4).expand(2, 3, 4),
        torch.randn(2, 1, 4).transpose(0, 1),
    ):
        made = leaf.detach().requires_grad_()
        (made * torch.randn(made.shape)).sum().backward()
        assert made.grad is not None
        described = metadata.describe({"dq": made.grad}, (made,), ["q"], accumulates=True)["dq"]
        assert described["stride"] == gradients.contract(made)
        assert gradients.against_leaf("dq", described, made, True, 0) == []
        other = described | {"dtype": torch.float64, "stride": (1, 1, 1)}
        found = gradients.against_leaf("dq", other, made, True, 0)
        assert [diff["what"] for diff in found] == ["dtype", "stride"]
        assert [d["what"] for d in gradients.against_leaf("dq", other, made, False, 0)] == ["dtype"]


def test_numbers_below_the_smallest_normal_may_be_flushed_where_the_job_says_so() -> None:
    args = qkv(8, torch.float32)
    args = (*args[:2], args[2] * 1e-40)
    judged = expectation(args)
    flushed = {"out": torch.zeros(2, 2, 8, 16)}
    assert numbers.judge(judged, flushed).diffs
    judged.flushes = True
    assert numbers.judge(judged, flushed).diffs == []
    assert numbers.judge(judged, {"out": torch.full((2, 2, 8, 16), 1e-36)}).diffs


def test_what_rounding_may_make_infinite_is_not_judged() -> None:
    def cancels(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v + torch.where(q * 2 - (q + q) > 0, torch.inf, 0.0)

    args = qkv(8, torch.float32)
    infinite = {"out": args[2].clone()}
    infinite["out"][0, 0, 0, 0] = torch.inf
    judged = expectation(args, reference=cancels)
    deviation = judged.deviation("out")
    assert deviation is not None
    assert deviation[0, 0].isinf().any()
    infinite["out"] = torch.where(deviation.isinf(), torch.inf, args[2])
    assert numbers.judge(judged, infinite).diffs == []
    infinite["out"][0, 0, 0, 0] = torch.inf
    plain = expectation(args, reference=lambda q, k, v: v)
    assert numbers.judge(plain, infinite).nonfinite


def test_a_digest_tells_values_and_not_how_they_are_kept() -> None:
    values = torch.tensor([[1.0, -0.0], [torch.nan, 2.0]])
    same = torch.tensor([[1.0, torch.nan], [0.0, 2.0]]).T
    assert replicas.digest(values) == replicas.digest(same)
    other = torch.nextafter(values, torch.full_like(values, torch.inf))
    assert replicas.digest(values) != replicas.digest(other)
    assert replicas.digest(values) != replicas.digest(values.reshape(4))
    assert replicas.digest(values[:0]) != replicas.digest(values[:0].to(torch.bfloat16))
