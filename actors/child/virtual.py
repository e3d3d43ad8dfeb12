"""A program's way through the child of a virtual target: it is compiled, and computes nothing.

The arguments are made on the CPU and become fake tensors of the card. `attention` and `compiled`
run on those, so that what is promised (shapes, dtypes, strides) can be compared, while the
compiler goes all the way to cubins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from actors.virtual import cuda

from . import metadata
from .execute import Execution
from .outcomes import Data
from .phases import Phases
from .program_module import Outputs
from .to_card import ToCard

NOTHING_RUNS = "virtual: kernels are compiled, not run"


class VirtualExecution(Execution):
    """One program on a card that is not there."""

    def __init__(self, settings: Data, phases: Phases) -> None:
        super().__init__(settings, phases)
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)  # constants of graphs are real
        self.skipped = {
            name: NOTHING_RUNS
            for name in ("numbers", "purity", "determinism", "batch_permutation")
        }  # fmt: skip

    @property
    def kernels(self) -> list[Data]:
        return cuda.told()

    def _reference(self) -> None:
        """There is nothing to compare with."""

    def _eager(self) -> None:
        self.phases.enter("eager")
        for call in range(len(self.program.calls)):
            outputs, described = self._run(self.program.attention, call, "eager")
            self.eager.append(outputs)
            self.described.append(described)

    def _run(
        self, function: Callable[..., Any], call: int, layer: str
    ) -> tuple[Outputs, dict[str, Data]]:
        to_card = ToCard(self.mode)
        args = tuple(map(to_card, self.program.inputs(call)))
        names = self.program.argument_names(len(args))
        with self.mode:
            outputs = self._outputs(function, args, layer)
        return outputs, metadata.describe(outputs, args, names)

    def _check_values(self, outputs: Outputs, call: int, layer: str, eager: Outputs | None) -> None:
        """There are no values."""

    def _check_determinism(
        self, function: Callable[..., Any], first: Outputs, call: int, layer: str
    ) -> None:
        """There are no values."""
