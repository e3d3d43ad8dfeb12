"""Kernels: the data of each (`specs`), and one plug-in per kernel that knows how it is written.

`REGISTRY` maps a kernel's `kind` to its plug-in (`generators.kernels.base.KernelPlugin`). A plug-in
is imported when it is first asked for, as plug-ins import the program, which imports this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnfuzz.generators.kernels.base import KernelPlugin

_PLUGINS = {
    "sdpa": "attnfuzz.generators.kernels.sdpa",
    "flex": "attnfuzz.generators.kernels.flex",
    "handwritten": "attnfuzz.generators.kernels.handwritten",
    "flash_attn": "attnfuzz.generators.kernels.flash_attn",
    "npu_fusion_attention": "attnfuzz.generators.kernels.npu_fusion_attention",
    "function": "attnfuzz.generators.kernels.function",
}

PACKAGES = {"flash_attn": "flash_attn", "npu_fusion_attention": "torch_npu"}
"""The distribution that a kernel comes in, where it is not torch."""


class _Registry(Mapping[str, "KernelPlugin"]):
    """Each module's `PLUGIN`, imported on demand."""

    def __getitem__(self, kind: str) -> KernelPlugin:
        plugin: KernelPlugin = import_module(_PLUGINS[kind]).PLUGIN
        return plugin

    def __iter__(self) -> Iterator[str]:
        return iter(_PLUGINS)

    def __len__(self) -> int:
        return len(_PLUGINS)


REGISTRY: Mapping[str, KernelPlugin] = _Registry()
