"""Generated pointwise kernels go one element beyond the end."""

from torch._inductor.async_compile import AsyncCompile

RIGHT = "xmask = xindex < xnumel"
WRONG = "xmask = xindex <= xnumel"

triton = AsyncCompile.triton


def faulty(self, kernel_name, source_code, device_str="cuda"):
    return triton(
        self,
        kernel_name,
        source_code.replace(RIGHT, WRONG if "_poi_" in kernel_name else RIGHT),
        device_str,
    )


AsyncCompile.triton = faulty
