"""Flex's forward kernel takes key heads in turn instead of by groups."""

from torch._inductor.async_compile import AsyncCompile

RIGHT = "off_hkv = off_hq // GQA_SHARED_HEADS"
WRONG = "off_hkv = off_hq % GQA_SHARED_HEADS"

triton = AsyncCompile.triton


def faulty(self, kernel_name, source_code, device_str="cuda"):
    return triton(self, kernel_name, source_code.replace(RIGHT, WRONG), device_str)


AsyncCompile.triton = faulty
