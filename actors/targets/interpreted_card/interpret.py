"""Kernels that Inductor generated for a card, run by Triton's interpreter on the CPU.

What is compiled is the whole of what the card would be given: the generated wrapper with its
allocations, the order of kernels, their arguments and grids. Its buffers are made on the CPU,
filled with NaN (an integer's largest value) so that what is never written shows. Library calls such
as `mm` are the CPU's; `actors.targets.interpreted_card.interpreter` is about the kernels.
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

from attnfuzz.actors.targets.interpreted_card.shadows import NoShadow, ShadowMode, attach, shadow

WIDTH = 128
"""Elements in x of a program, at least; a power of 2 that Inductor might have chosen itself."""

SPLITS = 4

KERNELS: set[str] = set()
"""Names of the kernels that were interpreted in this process."""


def install() -> None:
    """Makes this process run what it compiles. Imports Inductor and triton, both interpreted."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch.nn.attention import flex_attention

    from attnfuzz.actors.targets.interpreted_card import interpreter

    launch = CachingAutotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        KERNELS.add(self.fn.__name__)
        self.configs = [_widest(self.configs)]
        with interpreter.within(args):
            return launch(self, *args, **kwargs)

    CachingAutotuner.run = run
    CachingAutotuner.precompile = lambda self, *args, **kwargs: None
    flex_attention._validate_device = lambda *tensors: None  # it refuses gradients on the CPU
    _follow_flex()
    _split_little()
    interpreter.install()


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
        modes = [arg.fake_mode for arg in given if isinstance(arg, FakeTensor)]
        mode = modes[0] if modes else _mode_around()
        real = [shadow(arg) for arg in given]
        args.clear()
        with torch.no_grad(), _no_modes():
            outputs = compiled(list(real))
        same = {id(number): fake for number, fake in zip(real, given, strict=True)}
        return [same[id(one)] if id(one) in same else _faked(one, mode) for one in outputs]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _mode_around() -> FakeTensorMode:
    """The mode that a graph of no arguments is called in. Raises NoShadow where there is none."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    for mode in reversed(_get_current_dispatch_mode_stack()):
        if isinstance(mode, FakeTensorMode):
            return mode
    raise NoShadow


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
