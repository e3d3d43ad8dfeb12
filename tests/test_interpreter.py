"""What Triton's interpreter is given besides: bfloat16, bounds and asserts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.slow, needs_kernels]

BEFORE = """
import torch, triton, triton.language as tl
from attnfuzz.actors.targets.interpreted_card import interpreter

interpreter.install()
"""
ROUND = """
@triton.jit
def kernel(source, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out + at, tl.load(source + at).to(tl.bfloat16))

for dtype in (torch.float32, torch.float64, torch.int32):
    source = (torch.linspace(-300, 300, 64).double() * 1.0037).to(dtype)
    out = torch.empty(64, dtype=torch.bfloat16)
    with interpreter.within((source, out)):
        kernel[(1,)](source, out, 64)
    print(torch.equal(out, source.to(torch.bfloat16)))
"""
NEGATE = """
@triton.jit
def kernel(source, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out + at, -tl.load(source + at))

source, out = torch.linspace(-3, 3, 16).to(torch.bfloat16), torch.empty(16, dtype=torch.bfloat16)
with interpreter.within((source, out)):
    kernel[(1,)](source, out, 16)
print(torch.equal(out, -source))
"""
ADD = """
@triton.jit
def kernel(source, out, COUNT: tl.constexpr, BEYOND: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.atomic_add(out + at // 2 + BEYOND, tl.load(source + at), mask=at < COUNT - 1)

for dtype in (torch.float32, torch.bfloat16):
    source, out = torch.arange(16).to(dtype), torch.ones(8, dtype=dtype)
    with interpreter.within((source, out)):
        kernel[(1,)](source, out, 16, 0)
    print(out.tolist() == [2, 6, 10, 14, 18, 22, 26, 15])
    try:
        with interpreter.within((source, out)):
            kernel[(1,)](source, out, 16, 1)
    except Exception as error:
        print(str(error.__cause__ or error))
"""
ASSERT = """
@triton.jit
def kernel(out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.device_assert(at < COUNT - 1, "index out of bounds: 0 <= at < 15")

out = torch.empty(16)
try:
    with interpreter.within((out,)):
        kernel[(1,)](out, 16)
except Exception as error:
    print(str(error.__cause__ or error))
"""


def interpreted(text: str, folder: Path) -> list[str]:
    """The lines that a script with kernels prints."""
    script = folder / "kernels.py"
    script.write_text(BEFORE + text)
    ran = subprocess.run(
        [TOOLCHAIN, script],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_numbers_become_bfloat16_as_torch_rounds_them(tmp_path: Path) -> None:
    assert interpreted(ROUND, tmp_path) == ["True"] * 3


def test_bfloat16_is_negated_as_a_number(tmp_path: Path) -> None:
    assert interpreted(NEGATE, tmp_path) == ["True"]


def test_atomics_add_bfloat16_too_and_stay_within_buffers(tmp_path: Path) -> None:
    beyond = "add to 1 of 15 addresses outside every buffer that the kernel was given"
    assert interpreted(ADD, tmp_path) == ["True", beyond] * 2


def test_what_a_kernel_asserts_is_looked_at(tmp_path: Path) -> None:
    assert interpreted(ASSERT, tmp_path) == [
        "device-side assert: index out of bounds: 0 <= at < 15"
    ]
