"""What a zygote and its children do for a virtual card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfuzz.actors.targets.child_target import HIDE_CARDS, ChildTarget
from attnfuzz.actors.targets.virtual_card.cards import CARDS, Card

if TYPE_CHECKING:
    from attnfuzz.actors.child.execute import Execution
    from attnfuzz.actors.child.phases import Phases


@dataclass(frozen=True)
class VirtualCardChild(ChildTarget):
    """Programs are compiled for `card`, and not run."""

    card: Card

    def environment(self) -> dict[str, str]:
        return HIDE_CARDS

    def before_torch(self, libraries: Path) -> None:
        from attnfuzz.actors.targets.virtual_card import cuda, shim

        # How a ROCm build chooses SDPA's kernel is not known here.
        shim.load(libraries, None if self.card.is_amd else self.card.capability)
        cuda.tell_build(self.card)

    def warm_up(self, headers: Path) -> dict[str, str]:
        from torch._subclasses.fake_tensor import FakeTensorMode

        from attnfuzz.actors.targets import fake_copies
        from attnfuzz.actors.targets.virtual_card import cuda

        fake_copies.install()
        cuda.install(self.card)
        compile_once(FakeTensorMode())
        return {}

    def execution(self, settings: dict[str, Any], phases: Phases) -> Execution:
        from attnfuzz.actors.targets.virtual_card.execution import VirtualExecution

        return VirtualExecution(settings, phases)


CHILDREN = {name: VirtualCardChild(card) for name, card in CARDS.items()}


def compile_once(mode: Any) -> None:
    """Compiles a small function of fake tensors of `mode` for the virtual card, forward only: a
    backward would start a thread for its device."""
    import torch

    from attnfuzz.actors.sandbox import warm
    from attnfuzz.actors.targets.virtual_card import cuda

    warm.keep_files_here()
    with torch._inductor.config.patch(fx_graph_cache=False), mode:
        q = torch.empty(1, 2, 128, 64, device="cuda", dtype=torch.bfloat16)
        flex = torch.nn.attention.flex_attention.flex_attention
        torch.compile(flex)(q, q, q)
    cuda.KERNELS.clear()
    torch._dynamo.reset()
    warm.forget()
