"""Flex's kernel does not mask what lies beyond the last key."""

from torch._inductor.async_compile import AsyncCompile

RIGHT = 'post_mod_scores = tl.where(offs_n < KV_LEN, post_mod_scores, float("-inf"))'
WRONG = "pass"
ALSO = "mask_mod_output = tl.where(offs_n < KV_LEN, mask_mod_output, False)"

triton = AsyncCompile.triton


def faulty(self, kernel_name, source_code, device_str="cuda"):
    return triton(
        self, kernel_name, source_code.replace(RIGHT, WRONG).replace(ALSO, WRONG), device_str
    )


AsyncCompile.triton = faulty
