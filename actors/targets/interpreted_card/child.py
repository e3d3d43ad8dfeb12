"""What a zygote and its children do for a card whose kernels are interpreted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfuzz.actors.targets.child_target import HIDE_CARDS, INTERPRET_TRITON, ChildTarget
from attnfuzz.actors.targets.interpreted_card.cards import INTERPRETED
from attnfuzz.actors.targets.virtual_card.cards import Card
from attnfuzz.actors.targets.virtual_card.child import compile_once

if TYPE_CHECKING:
    from attnfuzz.actors.child.execute import Execution
    from attnfuzz.actors.child.phases import Phases


@dataclass(frozen=True)
class InterpretedCardChild(ChildTarget):
    """Programs are compiled for `card`, and their kernels run by Triton's interpreter."""

    card: Card

    def environment(self) -> dict[str, str]:
        return INTERPRET_TRITON | HIDE_CARDS

    def before_torch(self, libraries: Path) -> None:
        from attnfuzz.actors.targets.virtual_card import cuda, shim

        shim.load(libraries)  # fused SDPA is a library, and cannot be interpreted
        cuda.tell_build(self.card)

    def warm_up(self, headers: Path) -> dict[str, str]:
        from attnfuzz.actors.targets import fake_copies
        from attnfuzz.actors.targets.interpreted_card import interpret, shadows
        from attnfuzz.actors.targets.virtual_card import cuda

        fake_copies.install()
        cuda.install(self.card, runner=interpret.runner)
        interpret.install()
        compile_once(shadows.ShadowMode())
        return {}

    def execution(self, settings: dict[str, Any], phases: Phases) -> Execution:
        from attnfuzz.actors.targets.interpreted_card.execution import InterpretedExecution

        return InterpretedExecution(settings, phases)


CHILDREN = {name: InterpretedCardChild(card) for name, card in INTERPRETED.items()}
