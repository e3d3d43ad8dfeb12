"""The metadata oracle: shape, dtype, strides, device, requires_grad and aliasing.

`torch.compile` promises the strides of what the function returns; autograd promises none for
the gradients that `torch.autograd.grad` gives, so of those only shape, dtype and device are
compared. A stride of a dimension of extent
0 or 1, or of an empty tensor, says nothing and is not compared either. Costs nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from attnfuzz.actors.child import tensors
from attnfuzz.actors.child.outcomes import Data, diff
from attnfuzz.actors.child.program_module import Outputs
from attnfuzz.actors.oracles.oracle import Oracle, Run, fail_on

LAYOUT = ("stride", "requires_grad", "aliases")
"""Properties that may differ where numbers are compared all the same."""


class AgainstReference(Oracle):
    """Compares what eager attention gives with the reference."""

    needs_reference = True

    def check(self, run: Run) -> None:
        if run.log is not None:
            return
        expectation = self.execution.expectations[run.call]
        dtype = None
        if expectation.out_dtype is not None and expectation.yardstick is not None:
            meant = expectation.yardstick.get("out")
            dtype = meant.dtype if isinstance(meant, torch.Tensor) else None
        found = against_reference(expectation.expected, run.outputs, dtype, run.call)
        fail_on("metadata_mismatch", "metadata", found, "eager")


class AgainstEager(Oracle):
    """Compares what compiled attention gives with the eager run of the same call, where its numbers
    could not be compared otherwise."""

    def check(self, run: Run) -> None:
        found = self._found(run)
        if any(one["what"] not in LAYOUT for one in found):
            fail_on("metadata_mismatch", "metadata", found, run.layer)

    def _found(self, run: Run) -> list[Data]:
        if run.log is None:
            return []
        eager = self.execution.eager[run.call]
        found = missing(eager.outputs, run.outputs, run.call)
        return found + differences(eager.described, run.described, run.call)


class LayoutAgainstEager(AgainstEager):
    """The rest of it, once the numbers are found right: a wrong result with other strides is a
    wrong result first."""

    def check(self, run: Run) -> None:
        fail_on("metadata_mismatch", "metadata", self._found(run), run.layer)


def describe(
    outputs: Outputs, args: tuple[Any, ...], names: list[str], accumulates: bool = False
) -> dict[str, Data]:
    """The comparable properties of each output; `args` tell what it shares memory with. With
    `accumulates` gradients are what `backward` leaves in `.grad`, whose strides are promised."""
    unpromised = {f"{order}{name}" for name in names for order in ("d", "dd")} | {"tangent"}
    return {
        name: _of(value, args, names, returned=accumulates or name not in unpromised)
        for name, value in outputs.items()
        if isinstance(value, torch.Tensor)
    }


def differences(expected: dict[str, Data], actual: dict[str, Data], call: int) -> list[Data]:
    """Properties in which outputs that both have differ."""
    return [
        diff(name, what, before, actual[name][what], call=call)
        for name, properties in expected.items()
        if name in actual
        for what, before in properties.items()
        if actual[name][what] != before
    ]


def missing(expected: Outputs, actual: Outputs, call: int) -> list[Data]:
    """Outputs that are there on one side only; a gradient that is None counts as there."""
    return [
        diff(name, "presence", name in expected, name in actual, call=call)
        for name in sorted(expected.keys() ^ actual.keys())
    ]


def against_reference(
    expected: Outputs, actual: Outputs, dtype: torch.dtype | None, call: int
) -> list[Data]:
    """Shapes of `actual` against the float64 reference's; the dtype of "out" against `dtype`."""
    found = missing(expected, actual, call)
    for name, meant in expected.items():
        value = actual.get(name)
        if not isinstance(meant, torch.Tensor) or not isinstance(value, torch.Tensor):
            continue
        if meant.shape != value.shape:
            found.append(diff(name, "shape", tuple(meant.shape), tuple(value.shape), call=call))
        if name == "out" and dtype is not None and value.dtype != dtype:
            found.append(diff(name, "dtype", dtype, value.dtype, call=call))
    return found


def _of(tensor: torch.Tensor, args: tuple[Any, ...], names: list[str], *, returned: bool) -> Data:
    properties: Data = {
        "shape": tuple(tensor.shape),
        "dtype": tensor.dtype,
        "device": str(tensor.device),
    }
    if returned:
        properties["stride"] = significant_strides(tensor)
        properties["requires_grad"] = tensor.requires_grad
        properties["aliases"] = _aliases(tensor, args, names)
    return properties


def significant_strides(tensor: torch.Tensor) -> tuple[int | None, ...]:
    """The strides, None where the extent is 0 or 1; all None for an empty tensor."""
    if tensor.numel() == 0:
        return (None,) * tensor.dim()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride if extent > 1 else None for extent, stride in pairs)


def _aliases(tensor: torch.Tensor, args: tuple[Any, ...], names: list[str]) -> tuple[str, ...]:
    memory = _memory(tensor)
    if memory == 0:
        return ()
    return tuple(
        name
        for value, argument in zip(args, names, strict=True)
        for name, other in tensors.named_tensors(value, argument)
        if _memory(other) == memory
    )


def _memory(tensor: torch.Tensor) -> int:
    """What identifies a tensor's memory; 0 for none. Fake tensors have no address, and a tensor of
    simulated ranks has the memory of each: here that of the first."""
    if ranks := getattr(tensor, "_local_tensors", None):
        return _memory(ranks[min(ranks)])
    storage = tensor.untyped_storage()
    return storage._cdata if isinstance(tensor, FakeTensor) else storage.data_ptr()
