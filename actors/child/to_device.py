"""Arguments made on the CPU, copied to a device, or faked as a card's: what they are made of stays
as it was."""

from __future__ import annotations

import copy
import functools
import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.bias import CausalBias
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import BlockMask

from attnfuzz.actors.child import tensors
from attnfuzz.actors.child.program_module import MODULE


class ToDevice:
    """Copies values to `device`: tensors with their strides, offsets, shared memory and
    `requires_grad`, BlockMasks, PagedAttentions, and functions with all that they have captured.
    What was one object stays one object within a converter."""

    def __init__(self, device: str | torch.device) -> None:
        self._device = device
        self._made: dict[int, Any] = {}
        self._kept: list[object] = []  # ids are good as long as their objects live
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, value: Any) -> Any:
        """`value` for the device; what holds no tensor is itself."""
        if id(value) in self._made:
            return self._made[id(value)]
        made = self._convert(value)
        self._made[id(value)] = made
        self._kept.append(value)
        return made

    def _convert(self, value: Any) -> Any:
        if isinstance(value, CausalBias):  # it has no elements, and is of no device
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(map(self, value))
        if isinstance(value, list):
            return [self(item) for item in value]
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, functools.partial):
            args, keywords = map(self, value.args), self(value.keywords)
            return functools.partial(self(value.func), *args, **keywords)
        if isinstance(value, types.MethodType):
            return types.MethodType(self(value.__func__), self(value.__self__))
        if isinstance(value, BlockMask | PagedAttention) or type(value).__module__ == MODULE:
            return self._object(value)
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            copied = tensors.stored_bytes(tensor).to(self._device, copy=True)
            self._storages[storage._cdata] = copied.untyped_storage()
            self._kept.append(storage)
        there = torch.empty(0, dtype=tensor.dtype, device=self._device)
        there.set_(
            self._storages[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        return there.requires_grad_(tensor.requires_grad)

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        if function.__closure__ is None:
            return function
        cells = tuple(types.CellType() for _ in function.__closure__)
        made = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
        )
        made.__kwdefaults__ = function.__kwdefaults__
        made.__qualname__ = function.__qualname__
        self._made[id(function)] = made  # it may have captured itself
        for cell, before in zip(cells, function.__closure__, strict=True):
            cell.cell_contents = self(before.cell_contents)
        return made

    def _object(self, value: Any) -> Any:
        made = copy.copy(value)
        self._made[id(value)] = made
        for name, held in vars(value).items():
            object.__setattr__(made, name, self(held))
        return made


class ToCard(ToDevice):
    """The same to fake tensors of `mode`, of a card that need not be there."""

    def __init__(self, mode: FakeTensorMode, device: str = "cuda") -> None:
        super().__init__(device)
        self._mode = mode
        self._memory: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata, tensor.dtype
        with self._mode, torch.no_grad():
            if key not in self._memory:
                count = -(-storage.nbytes() // tensor.element_size())
                self._memory[key] = torch.empty(count, dtype=tensor.dtype, device=self._device)
                self._kept.append(storage)
                self._follow(self._memory[key], storage)
            view = self._memory[key].as_strided(
                tensor.size(), tensor.stride(), tensor.storage_offset()
            )
        return view.detach().requires_grad_(tensor.requires_grad)

    def _follow(self, memory: torch.Tensor, storage: torch.UntypedStorage) -> None:
        """Called once for each piece of fake `memory`, which stands for `storage`."""
