"""The replicas oracle: ranks agree on a result that all of them have whole. Costs one pass over it.

Each rank notes what it has, which `sandbox.together` compares when all have passed. Simulated
ranks are compared after each run.
"""

from __future__ import annotations

import ctypes
import hashlib

import torch

from attnfuzz.actors.child.outcomes import Failed
from attnfuzz.actors.oracles.oracle import Oracle, Run


class Replicas(Oracle):
    """Notes the bits of every result of a program of several ranks."""

    def check(self, run: Run) -> None:
        disagreement = getattr(self.execution.program, "disagreement", None)
        if disagreement is not None:
            raise Failed(disagreement | {"layer": run.layer})
        settings = self.execution.settings
        if settings.get("ranks", 1) == 1 or not settings.get("deterministic", True):
            return
        for name, result in run.outputs.items():
            if isinstance(result, torch.Tensor):
                self.execution.digests.append((run.layer, run.call, name, digest(result)))


def digest(tensor: torch.Tensor) -> str:
    """Equal for tensors of the same dtype, shape and values, NaN equal to NaN and 0.0 to -0.0."""
    whole = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if whole.is_floating_point():
        whole = torch.where(whole.isnan(), torch.full_like(whole, torch.nan), whole + 0.0)
    data = ctypes.string_at(whole.data_ptr(), whole.nbytes) if whole.numel() else b""
    return hashlib.sha256(f"{whole.dtype} {tuple(whole.shape)}".encode() + data).hexdigest()[:16]
