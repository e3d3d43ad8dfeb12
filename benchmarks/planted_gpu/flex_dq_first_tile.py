"""Flex's backward kernel writes every tile of dQ to the first one's place."""

from torch._inductor.async_compile import AsyncCompile

RIGHT = "dq_ptrs = DQ2 + offs_m2[:, None] * stride_dqm"
WRONG = "dq_ptrs = DQ2 + (offs_m2 % BLOCK_M2)[:, None] * stride_dqm"

triton = AsyncCompile.triton


def faulty(self, kernel_name, source_code, device_str="cuda"):
    return triton(self, kernel_name, source_code.replace(RIGHT, WRONG), device_str)


AsyncCompile.triton = faulty
