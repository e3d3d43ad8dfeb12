"""The purity oracle: a run changes neither its arguments nor the process's global state.

Costs a copy of each argument's storage per run.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import torch

from attnfuzz.actors.child import tensors
from attnfuzz.actors.child.outcomes import Data, diff
from attnfuzz.actors.oracles.oracle import Oracle, Run, fail_on

GLOBALS = "global state"
WITH_AOT = ("aot_eager", "inductor")


class Purity(Oracle):
    """Compares the arguments and the global state after each run with those before it. What the
    program writes in place, as the job says (`oracles.written`), has other numbers afterwards."""

    def before_run(self, run: Run) -> None:
        settings = self.execution.settings.get("oracles") or {}
        self._before = Snapshot(run.args, run.names, settings.get("written") or ())
        # The first run of a compiled checkpoint takes seeds for CUDA's generators from the CPU's,
        # so that two of them differ: `initialize_rng_states` of AOTAutograd's runtime_wrappers.py.
        if settings.get("draws_seeds") and run.layer in WITH_AOT:
            self._before.forget("rng_state")

    def after_run(self, run: Run) -> None:
        fail_on("mutation", "purity", self._before.differences(run.call), run.layer)


def global_state() -> dict[str, Any]:
    """What a computation must leave as it was."""
    return {
        "rng_state": torch.get_rng_state(),
        "python_rng_state": random.getstate(),
        "grad_mode": torch.is_grad_enabled(),
        "inference_mode": torch.is_inference_mode_enabled(),
        "default_dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "num_threads": torch.get_num_threads(),
        "flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
        "mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math_sdp": torch.backends.cuda.math_sdp_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }


class Snapshot:
    """A snapshot of the arguments of one run and of the global state before it.

    Checked of a tensor: every byte of its storage, those outside the view included, its shape,
    strides, offset and dtype, and whether it requires a gradient. `.grad` may change, and the
    bytes of those `written`. Of the views of one buffer those differ whose elements changed.
    """

    def __init__(
        self, args: tuple[Any, ...], names: list[str], written: Collection[str] = ()
    ) -> None:
        self._written = frozenset(written)
        self._tensors = [
            (name, tensor, tensors.stored_bytes(tensor).clone(), _metadata(tensor))
            for value, argument in zip(args, names, strict=True)
            for name, tensor in tensors.named_tensors(value, argument)
        ]
        self._globals = global_state()

    def forget(self, what: str) -> None:
        """Leaves `what` out of the global state that is compared."""
        del self._globals[what]

    def differences(self, call: int) -> list[Data]:
        """What has changed since."""
        found = []
        touched = {
            name
            for name, tensor, stored, _ in self._tensors
            if not torch.equal(tensors.stored_bytes(tensor), stored)
        }
        changed = touched - self._written - self._beside(touched)
        for name, tensor, stored, metadata in self._tensors:
            for what, before in metadata.items():
                if (after := _metadata(tensor)[what]) != before:
                    found.append(diff(name, what, before, after, call=call))
            if name in changed:
                now, actual = tensors.stored_bytes(tensor), "another size"
                if now.numel() == stored.numel():
                    actual = f"{int((now != stored).sum())} of {now.numel()} bytes changed"
                found.append(diff(name, "storage", "unchanged", actual, call=call))
        after_all = global_state()
        for what, before in self._globals.items():
            after = after_all[what]
            if isinstance(before, torch.Tensor):
                if not torch.equal(before, after):
                    found.append(diff(GLOBALS, what, "unchanged", "changed", call=call))
            elif before != after:
                expected, actual = ("unchanged", "changed") if "rng" in what else (before, after)
                found.append(diff(GLOBALS, what, expected, actual, call=call))
        return found

    def _beside(self, touched: Collection[str]) -> set[str]:
        """Those of the `touched` that changed only where other views of their buffer did."""
        buffers: dict[int, dict[str, bool]] = {}
        for name, tensor, stored, metadata in self._tensors:
            now = tensors.stored_bytes(tensor)
            if name in touched and now.numel() == stored.numel():
                before, after = (_elements(there, metadata) for there in (stored, now))
                views = buffers.setdefault(tensor.untyped_storage().data_ptr(), {})
                views[name] = not torch.equal(before, after)
        shared = (views for views in buffers.values() if any(views.values()))
        return {name for views in shared for name, own in views.items() if not own}


def _elements(stored: torch.Tensor, metadata: dict[str, Any]) -> torch.Tensor:
    """The bytes of a tensor's elements, of the bytes of its storage."""
    shape, stride, offset = (metadata[x] for x in ("shape", "stride", "storage_offset"))
    empty = torch.empty(0, dtype=metadata["dtype"], device=stored.device)
    elements = empty.set_(stored.untyped_storage(), offset, shape, stride)
    return elements.reshape(-1).view(torch.uint8)


def _metadata(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "shape": tuple(tensor.shape),
        "stride": tensor.stride(),
        "storage_offset": tensor.storage_offset(),
        "dtype": tensor.dtype,
        "requires_grad": tensor.requires_grad,
    }
