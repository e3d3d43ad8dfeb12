"""Triton's interpreter (`TRITON_INTERPRET=1`, set before triton is imported), with what it lacks.

Each load, store and atomic must lie within a buffer that the kernel was given, and what kernels
assert is looked at. It has libdevice's functions by torch's, and bfloat16, which Triton's own keeps
as bits and computes with as if they were integers, by way of float32.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch


class OutOfBounds(Exception):
    """A kernel used memory outside all buffers that it was given, or an index that it asserts to be
    within bounds was not."""


def install() -> None:
    """Mends Triton's interpreter in this process. Imports triton and Inductor."""
    from torch._inductor.runtime import triton_helpers
    from triton.runtime import interpreter

    triton_helpers.libdevice = Libdevice()
    interpreter.ReduceOps.generic_reduce = _reduce
    options = interpreter.interpreter_builder.options
    # Asserts are part of debugging; that no integer overflows, which then is too, is not asked.
    interpreter.interpreter_builder.options = replace(options, debug=True, sanitize_overflow=False)
    builder = interpreter.InterpreterBuilder
    builder.create_assert = _assert
    builder.create_dot = _dot(builder.create_dot)
    builder.get_bf16 = _bf16
    builder.cast_impl = _cast(builder.cast_impl)
    builder.unary_op = _unary(builder.unary_op)
    builder.binary_op = _binary(builder.binary_op)
    builder.create_masked_load = _checked(builder.create_masked_load, "load from", 0, 1)
    builder.create_masked_store = _checked(builder.create_masked_store, "store to", 0, 2)
    builder.create_atomic_rmw = _checked(_atomic(builder.create_atomic_rmw), "add to", 1, 3)


# -- memory ----------------------------------------------------------------------------------

_buffers: list[tuple[int, int]] = []
"""First and last address of each buffer of the kernel that runs."""


@contextlib.contextmanager
def within(args: Sequence[Any]) -> Iterator[None]:
    """While this lasts, loads and stores must lie within the memory of a tensor of `args`."""
    storages = [arg.untyped_storage() for arg in args if isinstance(arg, torch.Tensor)]
    before = _buffers[:]
    _buffers[:] = [(one.data_ptr(), one.data_ptr() + one.nbytes()) for one in storages]
    try:
        yield
    finally:
        _buffers[:] = before


def _checked(access: Callable[..., Any], what: str, at: int, mask_at: int) -> Callable[..., Any]:
    """`access` of the interpreter, with a look at the addresses in its argument `at`, those that
    the argument `mask_at` lets through."""

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        import numpy as np

        addresses = _masked(args[at], args[mask_at]).astype(np.int64)
        size = args[at].get_element_ty().primitive_bitwidth // 8 or 1
        inside = np.zeros(addresses.shape, dtype=bool)
        for first, last in _buffers:
            inside |= (addresses >= first) & (addresses + size <= last)
        if not inside.all():
            raise OutOfBounds(
                f"{what} {int((~inside).sum())} of {inside.size} addresses outside every buffer "
                "that the kernel was given"
            )
        return access(self, *args, **kwargs)

    return checked


def _masked(handle: Any, mask: Any) -> Any:
    """The values of `handle` where `mask` is true, one after the other."""
    import numpy as np

    return handle.data[np.broadcast_to(mask.data, handle.data.shape)]


def _assert(self: Any, condition: Any, message: str) -> None:
    if not condition.data.all():
        raise OutOfBounds(f"device-side assert: {message}")


def _atomic(atomic: Callable[..., Any]) -> Callable[..., Any]:
    """Atomics, which Triton's own does on the bits of a bfloat16."""

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *args: Any) -> Any:
        import numpy as np
        import triton.language as tl
        from triton._C.libtriton import ir
        from triton.runtime.interpreter import TensorHandle

        if val.dtype.scalar != tl.bfloat16:
            return atomic(self, op, ptr, val, mask, *args)
        if op != ir.ATOMIC_OP.FADD:
            raise NotImplementedError(f"{op} of bfloat16 is not interpreted")
        before = np.zeros(ptr.data.shape, dtype=np.uint16)
        chosen = np.broadcast_to(mask.data, ptr.data.shape)
        for place in zip(*np.nonzero(chosen), strict=True) if chosen.ndim else [()]:
            word = ctypes.c_uint16.from_address(int(ptr.data[place]))
            before[place] = word.value
            word.value = _sum(word.value, int(val.data[place]))
        return TensorHandle(before, tl.bfloat16)

    return create_atomic_rmw


def _sum(*bits: int) -> int:
    """Of bfloat16 numbers given as their bits."""
    numbers = torch.tensor(bits, dtype=torch.uint16).view(torch.bfloat16)
    return int(numbers.sum().view(torch.uint16))


# -- numbers ---------------------------------------------------------------------------------


def _bf16(builder: Any, value: float) -> Any:
    """A constant of bfloat16, which Triton's interpreter has no way to make and keeps as bits."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    bits = torch.tensor([value], dtype=torch.bfloat16).view(torch.uint16)
    return TensorHandle(bits.numpy(), tl.bfloat16)


def _cast(cast: Callable[..., Any]) -> Callable[..., Any]:
    """Conversions, those to bfloat16 rounded to the nearest, as the card does them."""

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        import numpy as np
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        before, after = src.dtype.scalar, dst_type.scalar
        if before == after or tl.bfloat16 not in (before, after):
            return cast(self, src, dst_type)
        data = torch.from_numpy(np.array(src.data))
        if before == tl.bfloat16:
            wide = TensorHandle(data.view(torch.bfloat16).float().numpy(), tl.float32)
            return wide if after == tl.float32 else cast(self, wide, dst_type)
        bits = data.to(torch.bfloat16).view(torch.uint16)
        return TensorHandle(bits.numpy(), tl.bfloat16)

    return cast_impl


def _unary(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation on one operand, one in bfloat16 by way of float32."""

    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        import triton.language as tl

        if arg.dtype.scalar != tl.bfloat16:
            return operation(self, arg, op)
        return self.cast_impl(operation(self, self.cast_impl(arg, tl.float32), op), tl.bfloat16)

    return unary_op


def _binary(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation on two operands, those in bfloat16 by way of float32."""

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        import triton.language as tl

        if lhs.dtype.scalar != tl.bfloat16:
            return operation(self, lhs, rhs, op)
        wide = (self.cast_impl(one, tl.float32) for one in (lhs, rhs))
        result = operation(self, *wide, op)
        return result if result.data.dtype == bool else self.cast_impl(result, tl.bfloat16)

    return binary_op


def _dot(dot: Callable[..., Any]) -> Callable[..., Any]:
    """Products of bfloat16 in float32, as the card accumulates them."""

    def create_dot(self: Any, a: Any, b: Any, *args: Any) -> Any:
        import triton.language as tl

        a, b = (
            self.cast_impl(one, tl.float32) if one.dtype.scalar == tl.bfloat16 else one
            for one in (a, b)
        )
        return dot(self, a, b, *args)

    return create_dot


class Libdevice:
    """Libdevice's functions, by torch's of the same meaning; Triton's own are compiled only."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = _LIBDEVICE.get(name)
        if function is None:
            raise AttributeError(f"libdevice's {name} is not interpreted")
        return lambda *args: _elementwise(function, args)


def _elementwise(function: Callable[..., torch.Tensor], args: Sequence[Any]) -> Any:
    """What `function` of torch's gives for tensors of Triton's, of one type."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    given = [interpreter.interpreter_semantic.to_tensor(arg) for arg in args]
    result = function(*(torch.from_numpy(np.ascontiguousarray(t.handle.data)) for t in given))
    kind = {torch.bool: tl.int1, torch.int64: tl.int64}.get(result.dtype, given[0].dtype)
    data = result.numpy().astype(interpreter._get_np_dtype(kind), copy=False)
    shaped = tl.block_type(kind, list(data.shape)) if given[0].type.is_block() else kind
    return tl.core.tensor(interpreter.TensorHandle(data, kind), shaped)


def _reduce(self: Any, inputs: Sequence[Any]) -> list[Any]:
    """A reduction by any function, neighbours two by two: the interpreter's own goes through the
    elements one by one."""
    import numpy as np

    inputs, axis = self.unravel(inputs, self.axis)
    kinds = [one.dtype for one in inputs]
    data = [np.moveaxis(one.handle.data, axis, 0) for one in inputs]

    def part(begin: int, end: int) -> list[Any]:
        each = zip(data, kinds, strict=True)
        return [self.to_tensor(one[begin:end:2], kind) for one, kind in each]

    while (count := len(data[0])) > 1:
        both = self.combine_fn.fn(*part(0, count - 1), *part(1, count))
        made = [one.handle.data for one in (both if isinstance(both, tuple) else (both,))]
        odd = [one[count - count % 2 :] for one in data]
        data = [np.concatenate(pair) for pair in zip(made, odd, strict=True)]
    places = range(inputs[0].handle.data.ndim) if self.axis is None else (axis,)
    reduced = [np.expand_dims(one[0], places) if self.keep_dims else one[0] for one in data]
    return [
        self.to_tensor(one if one.ndim else one.item(), kind)
        for one, kind in zip(reduced, kinds, strict=True)
    ]


_LIBDEVICE: dict[str, Callable[..., torch.Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "sqrt", "sin",
            "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
            "atan2", "pow", "fmod", "hypot", "copysign", "nextafter", "ldexp", "erf", "erfc",
            "erfinv", "lgamma", "ceil", "floor", "trunc", "signbit", "isnan", "isinf", "abs",
        )
    },
    "rint": torch.round, "nearbyint": torch.round, "fast_tanhf": torch.tanh,
    "llrint": lambda value: torch.round(value).to(torch.int64), "isfinited": torch.isfinite,
    "finitef": torch.isfinite, "fast_expf": torch.exp, "fast_logf": torch.log,
}  # fmt: skip
"""By name, functions that are the same."""
