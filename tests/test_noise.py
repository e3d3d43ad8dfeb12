"""Noise: how far rounding can carry a computation, of kernels that compute otherwise too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from attnfuzz.actors.oracles.error_budget import OF_NOISE
from attnfuzz.actors.oracles.noise import Noise


def test_noise_is_that_of_a_coarser_result_even_where_it_is_made_of_integers() -> None:
    q_idx, bias = torch.arange(4000, 4100), torch.zeros(100, dtype=torch.float16)
    with Noise(torch.float32, 0):
        scores = (q_idx + bias).to(torch.float32)
    assert (scores - q_idx).abs().max() > 2  # float16 is 2 or 4 apart there
    with Noise(torch.float16, 0):
        own = (q_idx + bias).to(torch.float32)
    assert torch.equal(own, (q_idx + bias).to(torch.float32))


@pytest.mark.parametrize("count", [150, 1000])
def test_noise_of_a_sum_covers_equal_numbers_that_are_added_one_by_one(count: int) -> None:
    each = torch.full((count,), 438.521548 / 150)
    added = torch.zeros(())
    for number in each:
        added = added + number
    exact = each.double().expand(100, count)
    with Noise(torch.float32, 0):
        deviation = (exact.sum(1) - each.double().sum()).abs().max()
    error = (added - each.double().sum()).abs()
    assert error / OF_NOISE < deviation < 1e-5 * exact[0].sum()


def test_noise_of_a_row_that_sees_one_key_covers_what_a_fused_kernel_leaves_of_a_zero() -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 2, 1, 64, dtype=torch.float64)
    k, v = (torch.randn(2, 2, 5, 64, dtype=torch.float64) for _ in range(2))
    mask, dout = torch.arange(5)[None] == 4, torch.randn_like(q)
    seen = v[:, :, 4:]  # what its gradient is the sum of cancels
    seen -= (seen * dout).sum(-1, keepdim=True) / dout.square().sum(-1, keepdim=True) * dout
    k.requires_grad_()

    def dk(out: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(out, k, dout)[0]

    def by_hand() -> torch.Tensor:
        return torch.softmax((q @ k.mT).masked_fill(~mask, float("-inf")), dim=-1) @ v

    assert not dk(by_hand()).any()
    left = dk(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)).abs().max()
    with Noise(torch.float64, 0):
        deviation = dk(by_hand()).abs().max()
    assert 0 < left / OF_NOISE < deviation < 1e-12


def test_noise_leaves_what_only_moves_values_alone() -> None:
    x = torch.randn(4, 5, dtype=torch.float64)
    with Noise(torch.bfloat16, 0):
        moved = torch.where(x > 0, x, x.clone()).mT.reshape(20)[2:].masked_fill(x.isnan().any(), 0)
    assert torch.equal(moved, x.mT.reshape(20)[2:])
