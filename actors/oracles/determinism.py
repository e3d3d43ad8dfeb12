"""The determinism oracle: the same call gives the same bits. Costs one more run."""

from __future__ import annotations

import torch

from attnfuzz.actors.child import tensors
from attnfuzz.actors.child.outcomes import Data, diff
from attnfuzz.actors.child.program_module import Outputs
from attnfuzz.actors.oracles.oracle import Oracle, Run, fail_on


class Determinism(Oracle):
    """Runs a call once more."""

    def check_again(self, run: Run) -> None:
        execution = self.execution
        if not execution.settings.get("deterministic", True):
            execution.skipped["determinism"] = "the kernel is documented not to be deterministic"
            return
        args = execution.program.inputs(run.call)
        second = execution.outputs(run.function, args, run.layer)
        found = differences(run.outputs, second, run.call)
        fail_on("nondeterminism", "determinism", found, run.layer)


def differences(first: Outputs, second: Outputs, call: int) -> list[Data]:
    """Outputs of two runs of one call that are not the same bit for bit."""
    found = []
    for name, before in first.items():
        after = second.get(name)
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            continue
        if not tensors.same_bits(before, after):
            error = float((before.detach().double() - after.detach().double()).abs().max())
            found.append(diff(name, "bits", "the same twice", f"differ by {error:.3g}", call=call))
    return found
