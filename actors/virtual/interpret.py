"""Kernels that Inductor generated for a card, run by Triton's interpreter on the CPU.

What is compiled is the whole of what the card would be given: the generated wrapper with its
allocations, the order of kernels, their arguments and grids. Its buffers are made on the CPU,
filled with NaN (an integer's largest value) so that what is never written shows, and each load and
store must lie within a buffer that the kernel was given. Library calls such as `mm` are the CPU's.

The interpreter is Triton's own (`TRITON_INTERPRET=1`, set before triton is imported), with what it
lacks: libdevice's functions, and products of bfloat16, which it would multiply bit by bit.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .shadows import ShadowMode, attach, shadow


class OutOfBounds(Exception):
    """A kernel loaded from or stored to memory outside all buffers that it was given."""


WIDTH = 128
"""Elements in x of a program, at least; a power of 2 that Inductor might have chosen itself."""

SPLITS = 4

KERNELS: set[str] = set()
"""Names of the kernels that were interpreted in this process."""


def install() -> None:
    """Makes this process run what it compiles. Imports Inductor and triton, both interpreted."""
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch.nn.attention import flex_attention
    from triton.runtime import interpreter

    launch = CachingAutotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        KERNELS.add(self.fn.__name__)
        self.configs = [_widest(self.configs)]
        with within(args):
            return launch(self, *args, **kwargs)

    CachingAutotuner.run = run
    CachingAutotuner.precompile = lambda self, *args, **kwargs: None
    flex_attention._validate_device = lambda *tensors: None  # it refuses gradients on the CPU
    _follow_flex()
    _split_little()
    builder = interpreter.InterpreterBuilder
    triton_helpers.libdevice = Libdevice()
    interpreter.ReduceOps.generic_reduce = _reduce
    builder.create_dot = _dot(builder.create_dot)
    builder.get_bf16 = _bf16
    builder.binary_op = _in_float32(builder.binary_op)
    builder.create_masked_load = _checked(builder.create_masked_load, 1)
    builder.create_masked_store = _checked(builder.create_masked_store, 2)


def _widest(configs: Sequence[Any]) -> Any:
    """Of the tiles that Inductor would try those with the fewest programs, made wider still in x
    where they are narrow: each program costs milliseconds, whatever it does."""
    chosen = copy.copy(
        max(configs, key=lambda one: math.prod(one.kwargs.get(f"{axis}BLOCK", 1) for axis in "XYZ"))
    )
    if "XBLOCK" in chosen.kwargs and "YBLOCK" not in chosen.kwargs:
        chosen.kwargs = chosen.kwargs | {"XBLOCK": max(chosen.kwargs["XBLOCK"], WIDTH)}
    return chosen


def _split_little() -> None:
    """Has decoding split keys and values in few parts: the card would have one for each two of its
    multiprocessors."""
    from torch._inductor.kernel.flex import flex_decoding

    before = flex_decoding.get_split_k

    def get_split_k(*args: Any) -> int:
        return min(before(*args), SPLITS)

    flex_decoding.get_split_k = get_split_k


def _follow_flex() -> None:
    """Has attention that was not compiled computed operation by operation: of a fake tensor torch
    would tell the shape only."""
    # By its name, as the package has an attribute of that name: the operator.
    module = importlib.import_module("torch._higher_order_ops.flex_attention")
    for operator, dense in (
        (module.flex_attention, module.sdpa_dense),
        (module.flex_attention_backward, module.sdpa_dense_backward),
    ):

        def follow(mode: ShadowMode, *args: Any, dense: Callable[..., Any] = dense) -> Any:
            with mode:
                return dense(*args)

        operator.py_impl(ShadowMode)(follow)


# -- what was compiled -----------------------------------------------------------------------


def runner(compiled: Any) -> Callable[[list[Any]], list[Any]]:
    """A function of fake tensors that runs what Inductor `compiled` on their shadows."""

    def run(args: list[Any]) -> list[Any]:
        _prepare()
        given = list(args)
        mode = next(arg.fake_mode for arg in given if isinstance(arg, FakeTensor))
        real = [shadow(arg) for arg in given]
        args.clear()
        with torch.no_grad(), _no_modes():
            outputs = compiled(list(real))
        same = {id(number): fake for number, fake in zip(real, given, strict=True)}
        return [same[id(one)] if id(one) in same else _faked(one, mode) for one in outputs]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _faked(output: Any, mode: FakeTensorMode) -> Any:
    """A fake tensor of the card with `output` as its shadow."""
    if not isinstance(output, torch.Tensor):
        return output
    with mode:
        fake = torch.empty_strided(
            output.size(), output.stride(), dtype=output.dtype, device="cuda"
        )
    attach(fake, output)
    return fake


@contextlib.contextmanager
def _no_modes() -> Iterator[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


def _prepare() -> None:
    """Gives the generated modules the CPU's memory for the card's."""
    import torch._inductor.codecache as codecache

    for module in list(codecache.PyCodeCache.modules):
        names = vars(module)
        if "empty_strided_cuda" in names:
            names["empty_strided_cuda"] = _empty_strided
            names["get_raw_stream"] = lambda *_: 0
        if "assert_alignment" in names:
            names["assert_alignment"] = lambda *_, **__: None  # malloc's is the CPU's


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory that was never written, as it is found worst."""
    made = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype)
    memory = torch.empty(0, dtype=dtype).set_(made.untyped_storage())
    if dtype.is_floating_point or dtype.is_complex:
        memory.fill_(float("nan"))
    else:
        memory.fill_(True if dtype is torch.bool else torch.iinfo(dtype).max)
    return made


# -- the interpreter -------------------------------------------------------------------------

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


def _checked(access: Callable[..., Any], mask_at: int) -> Callable[..., Any]:
    """`access` of the interpreter, with a look at its addresses."""

    def checked(self: Any, ptrs: Any, *args: Any) -> Any:
        import numpy as np

        mask = args[mask_at - 1].data
        addresses = ptrs.data[np.broadcast_to(mask, ptrs.data.shape)].astype(np.int64)
        size = ptrs.get_element_ty().primitive_bitwidth // 8 or 1
        inside = np.zeros(addresses.shape, dtype=bool)
        for first, last in _buffers:
            inside |= (addresses >= first) & (addresses + size <= last)
        if not inside.all():
            what = "store to" if mask_at == 2 else "load from"
            raise OutOfBounds(
                f"{what} {int((~inside).sum())} of {inside.size} addresses outside every buffer "
                "that the kernel was given"
            )
        return access(self, ptrs, *args)

    return checked


def _bf16(builder: Any, value: float) -> Any:
    """A constant of bfloat16, which Triton's interpreter has no way to make and keeps as bits."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    bits = torch.tensor([value], dtype=torch.bfloat16).view(torch.uint16)
    return TensorHandle(bits.numpy(), tl.bfloat16)


def _in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation on bfloat16 by way of float32: the interpreter would do it on the bits."""

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
