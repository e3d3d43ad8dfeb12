"""What a zygote and its children do for a virtual NPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfuzz.actors.targets.child_target import HIDE_CARDS, INTERPRET_TRITON, ChildTarget
from attnfuzz.actors.targets.virtual_npu import cann
from attnfuzz.actors.targets.virtual_npu.npus import NPUS, Npu

if TYPE_CHECKING:
    from attnfuzz.actors.child.execute import Execution
    from attnfuzz.actors.child.phases import Phases


@dataclass(frozen=True)
class VirtualNpuChild(ChildTarget):
    """Programs run on fake tensors of `npu`."""

    npu: Npu

    def environment(self) -> dict[str, str]:
        return INTERPRET_TRITON | HIDE_CARDS

    def before_torch(self, libraries: Path) -> None:
        cann.load(libraries, self.npu)

    def warm_up(self, headers: Path) -> dict[str, str]:
        from attnfuzz.actors.targets import fake_copies

        fake_copies.install()
        _trace_once()
        return {}

    def execution(self, settings: dict[str, Any], phases: Phases) -> Execution:
        from attnfuzz.actors.targets.virtual_npu.execution import NpuExecution

        return NpuExecution(settings, phases)


CHILDREN = {name: VirtualNpuChild(npu) for name, npu in NPUS.items()}


def _trace_once() -> None:
    """Imports torch_npu, and compiles a small function for the virtual NPU, forward only."""
    import torch
    import torch_npu
    from torch._subclasses.fake_tensor import FakeTensorMode

    from attnfuzz.actors.sandbox import warm

    warm.keep_files_here()
    with FakeTensorMode():
        q = torch.empty(1, 2, 16, 16, device="npu", dtype=torch.bfloat16)
        attention = lambda q: torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD")[0]  # noqa: E731
        torch.compile(attention, backend="aot_eager")(q)
    torch._dynamo.reset()
    warm.forget()
