"""The accelerators that programs can run on: a further one is an entry here.

Standard library only: zygotes and their children load this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """A kind of accelerator. `label` is what people call it, `resource` what Ray calls one;
    `visible` are the environment variables that say which of them a process sees, of which Ray sets
    the one of the maker's at hand; `module` has to be imported before torch knows it. `is_gpu`:
    Inductor compiles for it with Triton. `kernels` are the kinds that it takes, None for all but
    those of one device; `own` are further ones of the latter. `simulates`: programs of several
    simulated ranks run on it, which share it."""

    label: str
    resource: str
    visible: tuple[str, ...]
    module: str = "torch"
    is_gpu: bool = True
    kernels: tuple[str, ...] | None = None
    own: tuple[str, ...] = ()
    simulates: bool = False


NPU_KERNELS = ("npu_fusion_attention", "sdpa", "handwritten", "function")
"""Kinds of kernel that torch_npu takes."""

DEVICES = {
    "cuda": Device(
        label="CUDA",
        resource="GPU",
        visible=("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        own=("varlen",),
        simulates=True,
    ),
    "xpu": Device(
        label="XPU", resource="GPU", visible=("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR")
    ),
    "npu": Device(
        label="NPU",
        resource="NPU",
        visible=("ASCEND_RT_VISIBLE_DEVICES",),
        module="torch_npu",
        is_gpu=False,
        kernels=NPU_KERNELS,
    ),
}
"""By target, which has the name that torch gives the device. ROCm is "cuda" to torch."""
