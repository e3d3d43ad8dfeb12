"""Walking arguments, and tensors seen bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, FunctionType
from typing import Any

import torch


def is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def named_tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an argument: itself, members of tuples, lists and dicts, a BlockMask's, and
    those that a function captures."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for i, member in enumerate(value):
            yield from named_tensors(member, f"{name}[{i}]")
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from named_tensors(member, f"{name}[{key!r}]")
    elif type(value).__name__ == "BlockMask":
        for key in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
            yield from named_tensors(getattr(value, key, None), f"{name}.{key}")
        yield from named_tensors(value.mask_mod, f"{name}.mask_mod")
    elif isinstance(value, FunctionType) and value.__closure__:
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
            if isinstance(captured := _contents(cell), torch.Tensor):
                yield f"{name}.{variable}", captured


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
