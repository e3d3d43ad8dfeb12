"""What a zygote and its children do for one target: the base of what each sort of target has.

Standard library only: the toolchain's interpreter loads this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfuzz.actors.targets.accelerator.devices import DEVICES

if TYPE_CHECKING:
    from attnfuzz.actors.child.execute import Execution
    from attnfuzz.actors.child.phases import Phases


INTERPRET_TRITON = {"TRITON_INTERPRET": "1"}
"""Triton decides at import; on a CPU its kernels (flash_attn's, say) can only be interpreted."""

HIDE_CARDS = dict.fromkeys(DEVICES["cuda"].visible, "")
"""Autograd starts a thread for each device that it sees: forking would not be safe then."""


class ChildTarget(ABC):
    """The steps of a zygote, in their order, and then of each child that it forks."""

    def environment(self) -> dict[str, str]:
        """Variables for the zygote's environment, beside those of every zygote."""
        return {}

    def before_torch(self, libraries: Path) -> None:  # noqa: B027  (most targets have nothing)
        """What is done before torch is imported; `libraries` is a folder for what is built then,
        kept between runs. Raises RuntimeError, with one sentence."""

    def importing(self) -> AbstractContextManager[None]:
        """What holds while torch and all that a compile needs are imported."""
        return nullcontext()

    @abstractmethod
    def warm_up(self, headers: Path) -> dict[str, str]:
        """What is done after torch is imported, once for all children; `headers` has precompiled
        headers. Starts no thread. Gives entries about the device for the zygote's environment.
        Raises what torch raises."""

    def warm_up_compiler(self, headers: Path) -> None:  # noqa: B027  (some compile in `warm_up`)
        """First compiles, before the first child whose program compiles. The rest as above."""

    @abstractmethod
    def execution(self, settings: dict[str, Any], phases: Phases) -> Execution:
        """In a child: the execution of the job `settings`."""
