"""Which ways of compiling and which modes go together, and with what: rules of `model.validity`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Layout, Program

AHEAD = ("export", "aoti")
"""Ways to compile that need all of the program before it is called."""


def _compile(p: Program) -> Iterator[Problem]:
    if p.compile is None:
        return
    if p.compile.via == "local" and (p.mesh is None or p.mesh.method is None):
        yield Problem("compile.via", "expected another: without a mesh.method nothing is local")
    if p.compile.mode is not None and p.compile.options:
        yield Problem("compile.options", "expected none: torch takes a mode or options, not both")
    if p.compile.backend != "inductor":
        if p.compile.mode is not None:
            yield Problem("compile.mode", "expected none: modes are Inductor's")
        if p.compile.options:
            yield Problem("compile.options", "expected none: options are Inductor's")


def _ahead(p: Program) -> Iterator[Problem]:
    """What is exported takes tensors alone, and is traced once, whatever the further calls are."""
    compiled = p.compile
    if compiled is None or compiled.via not in AHEAD:
        return
    via, backend = compiled.via, "inductor" if compiled.via == "aoti" else "eager"
    if compiled.backend != backend:
        yield Problem("compile.backend", f"expected {backend} for {via}")
    if not plugin_of(p).wrappable(p.kernel):
        yield Problem("compile.via", f"expected SDPA, by hand or a function for {via}")
    for key, wrong in (
        ("compile.mode", compiled.mode is not None),
        ("compile.dynamic", compiled.dynamic is not None),
        ("compile.fullgraph", not compiled.fullgraph),
        ("compile.options.cpp_wrapper", "cpp_wrapper" in compiled.options),
        ("transform", p.transform != "none"),
        ("mesh", p.mesh is not None),
        ("surround.checkpoint", p.surround.checkpoint != "none"),
        ("surround.integration", p.surround.integration != "direct"),
        ("grad_mode", p.grad_mode != "default"),
        ("training", via == "aoti" and p.training is not None),
    ):
        if wrong:
            yield Problem(key, f"expected the default for {via}")
    yield from _varying(p, via)


def _varying(p: Program, via: str) -> Iterator[Problem]:
    """Exported programs take 0 and 1 for constants, and strides for what they are."""
    for name in ("batch", "q_len", "kv_len"):
        extents = {getattr(p.shape, name), *(getattr(call, name) for call in p.calls)}
        if len(extents) > 1 and min(extents) < 2:
            yield Problem(f"shape.{name}", f"expected 2 or more where calls differ, for {via}")
        if len(extents) > 1 and any(getattr(p, of).layout != Layout() for of in ("q", "k", "v")):
            yield Problem("calls", f"expected the same {name} with layouts, for {via}")


def _marks(p: Program) -> Iterator[Problem]:
    """Marks are dynamo's, and a size that is marked to vary is not 0 or 1."""
    compiled = p.compile
    if compiled is None:
        return
    for name in ("batch", "q_len", "kv_len"):
        mark = getattr(compiled.marks, name)
        if mark == "auto":
            continue
        key = f"compile.marks.{name}"
        extents = {getattr(p.shape, name), *(getattr(call, name) for call in p.calls)}
        if compiled.via in AHEAD:
            yield Problem(key, f"expected auto for {compiled.via}")
        if mark != "static" and min(extents) < 2:
            yield Problem(key, f"expected auto or static, as {name} is {min(extents)}")
        if mark != "static" and compiled.dynamic is False:
            yield Problem(key, "expected auto or static where compile.dynamic is false")
        if p.transform != "none" or p.mesh is not None or p.packed != "none":
            yield Problem(key, "expected auto with a transform, a mesh or packed inputs")


def _modes(p: Program) -> Iterator[Problem]:
    trained = p.training is not None and p.compile is not None and p.compile.via not in AHEAD
    if p.modes.compiled_autograd and not trained:
        yield Problem("modes.compiled_autograd", "expected false: no compiled backward pass")
    if p.modes.compiled_autograd and p.training is not None and p.training.double:
        yield Problem("training.double", "expected false with compiled autograd")
    if p.modes.warn_for_unfused_kernels and p.compile is not None:
        yield Problem("modes.warn_for_unfused_kernels", "expected false where it is compiled")
    if p.modes.default_dtype != "float32" and p.score_mod is not None:
        yield Problem("modes.default_dtype", "expected float32, which a score modification makes")


RULES: tuple[Callable[[Program], Iterator[Problem]], ...] = (_compile, _ahead, _marks, _modes)
