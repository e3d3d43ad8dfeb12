"""Flex's forward kernels apply the scale twice."""

from torch._inductor.async_compile import AsyncCompile

RIGHT = "qk *= SM_SCALE"
WRONG = "qk *= SM_SCALE * SM_SCALE"

triton = AsyncCompile.triton


def faulty(self, kernel_name, source_code, device_str="cuda"):
    return triton(self, kernel_name, source_code.replace(RIGHT, WRONG), device_str)


AsyncCompile.triton = faulty
