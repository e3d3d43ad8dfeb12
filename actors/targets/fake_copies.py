"""Copies of real tensors, such as a graph's constants, made while tensors are fake."""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Makes a deep copy of a real tensor a real one also within a fake tensor mode, where torch
    would mix its memory with fake memory. Imports torch."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    within_mode = torch.Tensor.__deepcopy__

    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if isinstance(self, FakeTensor):
            return within_mode(self, memo)
        with unset_fake_temporarily():
            return within_mode(self, memo)

    torch.Tensor.__deepcopy__ = __deepcopy__
