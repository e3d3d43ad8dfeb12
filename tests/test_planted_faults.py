"""A fault that takes the place of a function that torch itself looks up breaks nothing but what it
says: what else failed would be counted as further buckets of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
REPLACES = re.compile(
    r"^(?:F|torch\.nn\.functional)\.scaled_dot_product_attention = |^torch\.compile = ", re.M
)
FAULTS = [
    fault for fault in sorted(BENCHMARKS.glob("planted*/*.py"))
    if REPLACES.search(fault.read_text())
]  # fmt: skip

CHECKS = """
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

torch.manual_seed(1)
q, k, v = torch.randn(3, 1, 2, 6, 8)
bools = torch.ones(6, 6, dtype=torch.bool).tril()
expected = F.scaled_dot_product_attention(q, k, v, attn_mask=bools)
{fault}
for bias in (causal_upper_left(6, 6), causal_lower_right(6, 6)):
    torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v, bias), expected)
wide = torch.ones(4, 6, dtype=torch.bool).tril(2)
torch.testing.assert_close(
    F.scaled_dot_product_attention(q[:, :, :4], k, v, attn_mask=causal_lower_right(4, 6)),
    F.scaled_dot_product_attention(q[:, :, :4], k, v, attn_mask=wide),
)

@torch.compile(backend="eager")
def decorated(x):
    return x + 1

assert decorated(torch.zeros(2)).tolist() == [1, 1]
"""


def test_there_are_such_faults() -> None:
    assert len(FAULTS) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.stem for fault in FAULTS])
def test_what_the_fault_is_not_about_is_as_it_was(fault: Path) -> None:
    code = CHECKS.format(fault=f"exec(open({str(fault)!r}).read(), {{}})")
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
