"""Flex's forward kernel does not write the log-sum-exp of a ragged tile's last row."""

from torch._inductor.async_compile import AsyncCompile

RIGHT = "tl.store(l_ptrs, lse, mask=offs_m < Q_LEN)"
WRONG = "tl.store(l_ptrs, lse, mask=offs_m < Q_LEN - 1)"

triton = AsyncCompile.triton


def faulty(self, kernel_name, source_code, device_str="cuda"):
    return triton(self, kernel_name, source_code.replace(RIGHT, WRONG), device_str)


AsyncCompile.triton = faulty
