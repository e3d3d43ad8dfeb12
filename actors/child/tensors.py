"""Walking arguments, and tensors seen bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from attnfuzz.actors.child.program_module import MODULE


def is_floating(value: Any) -> bool:
    """Whether `value` is a tensor of floats. Any other value is not."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


BLOCK_MASK = tuple(
    f"{which}{axis}_{what}"
    for axis in ("kv", "q")
    for which in ("", "full_")
    for what in ("num_blocks", "indices")
)
"""The tensors of a BlockMask."""


def named_tensors(
    value: Any, name: str, within: frozenset[int] = frozenset()
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an argument: itself, members of tuples, lists, dicts and the program's own
    objects, a BlockMask's and a PagedAttention's, and those that a function, a method or a partial
    has. `within` are the ids of what it lies in: a function may capture itself."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif id(value) not in within:
        for inner, member in _members(value):
            yield from named_tensors(member, f"{name}{inner}", within | {id(value)})


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (tuple, list)):
        yield from ((f"[{i}]", member) for i, member in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", member) for key, member in value.items())
    elif isinstance(value, partial):
        yield "", value.func
        yield from _members(value.args)
        yield from _members(value.keywords)
    elif isinstance(value, MethodType):
        yield "", value.__self__
    elif type(value).__name__ == "BlockMask":
        for key in (*BLOCK_MASK, "mask_mod"):
            yield f".{key}", getattr(value, key, None)
    elif isinstance(value, FunctionType) and value.__closure__:
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
            yield f".{variable}", _contents(cell)
    elif type(value).__module__ == MODULE or type(value).__name__ == "PagedAttention":
        yield from ((f".{key}", member) for key, member in vars(value).items())


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not bound yet
        return None


def cast(value: Any, dtype: torch.dtype) -> Any:
    """The argument with its floating-point tensors as fresh leaves of `dtype`."""
    if is_floating(value):
        return value.detach().clone().to(dtype).requires_grad_(value.requires_grad)
    if type(value) in (tuple, list):
        return type(value)(cast(member, dtype) for member in value)
    if type(value) is dict:
        return {key: cast(member, dtype) for key, member in value.items()}
    return value


def computation_dtype(args: tuple[Any, ...], autocast: str | None) -> torch.dtype:
    """The precision of the computation: autocast's, or the lowest of the first three tensors."""
    if autocast is not None:
        return getattr(torch, autocast)
    leading = [value.dtype for value in args if is_floating(value)][:3]
    return max(leading, key=lambda d: torch.finfo(d).eps, default=torch.float32)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal shape, dtype and every value, NaN equal to NaN and 0.0 to -0.0."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    left, right = left.detach(), right.detach()
    equal = left == right
    if left.is_floating_point():
        equal |= left.isnan() & right.isnan()
    return bool(equal.all())


def stored_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the tensor's storage, those outside the view included; shares memory."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
