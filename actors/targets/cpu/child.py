"""What a zygote and its children do for the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfuzz.actors.targets.child_target import HIDE_CARDS, INTERPRET_TRITON, ChildTarget

if TYPE_CHECKING:
    from attnfuzz.actors.child.execute import Execution
    from attnfuzz.actors.child.phases import Phases


class CpuChild(ChildTarget):
    """Programs are compiled for the CPU and run on it."""

    def environment(self) -> dict[str, str]:
        return INTERPRET_TRITON | HIDE_CARDS

    def warm_up(self, headers: Path) -> dict[str, str]:
        import torch

        # Autograd starts a thread per device it finds, later ones of the warm-up's own making
        # included.
        torch.ones(1, requires_grad=True).sum().backward()
        torch.manual_seed(0)
        return {}

    def warm_up_compiler(self, headers: Path) -> None:
        from attnfuzz.actors.sandbox import warm

        warm.warm_up(headers)

    def execution(self, settings: dict[str, Any], phases: Phases) -> Execution:
        from attnfuzz.actors.child.execute import Execution

        return Execution(settings, phases)


CHILDREN = {"cpu": CpuChild()}
