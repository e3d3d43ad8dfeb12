"""Fake tensors of a card that carry real ones: a *shadow* on the CPU holds each one's numbers.

Whatever is called on fake tensors while a program runs is called on their shadows too. While a
compiler traces it uses fake tensors of its own, which have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

CPU = torch.device("cpu")


class NoShadow(Exception):
    """A tensor's numbers are not known: they come from an operator that gave the shape only."""


def attach(fake: torch.Tensor, real: torch.Tensor) -> None:
    """Makes `real` the shadow of `fake`."""
    fake._shadow = real


def shadow(value: Any) -> Any:
    """The numbers behind a fake tensor; any other value is itself. Raises NoShadow."""
    if not isinstance(value, FakeTensor):
        return value
    if not hasattr(value, "_shadow"):
        raise NoShadow
    return value._shadow


class ShadowMode(FakeTensorMode):
    """A mode whose fake tensors have shadows, as far as they can be computed."""

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Runs an operator on fake tensors, and on their shadows where every one has a shadow.
        Reading a tensor's number reads its shadow; raises NoShadow where there is none."""
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            return shadow(args[0]).item()
        fake = super().dispatch(func, types, args, kwargs)
        leaves = pytree.tree_leaves((args, kwargs))
        if all(hasattr(leaf, "_shadow") for leaf in leaves if isinstance(leaf, FakeTensor)):
            follow(func, args, kwargs, fake)
        return fake


def follow(func: Any, args: Sequence[object], kwargs: Mapping[str, object], fake: object) -> None:
    """Calls `func` on the shadows, and makes what it gives the shadow of `fake`."""
    outputs = pytree.tree_leaves(fake)
    if not any(isinstance(one, FakeTensor) for one in outputs):
        return
    here, options = pytree.tree_map(_on_cpu, (tuple(args), dict(kwargs)))
    with torch.no_grad():
        real = func(*here, **options)
    for one, numbers in zip(outputs, pytree.tree_leaves(real), strict=True):
        if isinstance(one, FakeTensor):
            attach(one, numbers)


def _on_cpu(value: Any) -> Any:
    return CPU if isinstance(value, torch.device) else shadow(value)
