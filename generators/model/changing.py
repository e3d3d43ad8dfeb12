"""What differs between calls, and with what it goes together: rules of `model.validity`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.indices import IntArgument, IntConst
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import located, put, walk


def captured(program: Program) -> int:
    """How often the mask and the score modification capture the number."""
    trees = [tree for tree in (program.mask, program.score_mod) if tree is not None]
    return sum(isinstance(node, IntArgument) for tree in trees for node in walk(tree))


def with_constant(program: Program, value: int) -> Program:
    """The program with a constant wherever it captures the number."""
    if not any(isinstance(node, IntArgument) for node in walk(program)):
        return program  # as most programs are: to locate takes longer
    for path, _, node in located(program):
        if isinstance(node, IntArgument):
            program = put(program, path, IntConst(value=value))
    return program


def settled(program: Program, value: float) -> Program:
    """The program with that value of its argument in every call."""
    argument = program.argument
    if argument is None:
        return program
    alone = replace(program, argument=None)
    if argument.what == "number":
        return with_constant(alone, int(value))
    kernel: Any = alone.kernel
    return (
        replace(alone, kernel=replace(kernel, scale=value)) if hasattr(kernel, "scale") else alone
    )


def changing_problems(p: Program) -> Iterator[Problem]:
    """Both are of programs that are called as they are, with tensors and numbers alone."""
    yield from _argument(p)
    yield from _in_place(p)
    key = "in_place" if p.argument is None else "argument"
    if p.argument is None and not p.in_place:
        return
    plain = p.mesh is None and p.transform == "none" and p.surround.integration == "direct"
    if not plain or plugin_of(p).dropout_p(p.kernel):
        yield Problem(key, "expected no mesh, transform, integration or dropout with it")
    if p.compile is not None and p.compile.via not in ("compile", "module"):
        yield Problem("compile.via", f"expected compile or module with {key}")


def _argument(p: Program) -> Iterator[Problem]:
    argument, count = p.argument, captured(p)
    wanted = int(argument is not None and argument.what == "number")
    if count != wanted:
        yield Problem(
            "argument", f"expected {'one' if wanted else 'no'} place where it is captured"
        )
    if argument is None:
        return
    if not plugin_of(p).takes_argument(p.kernel, argument):
        yield Problem("argument", f"expected none: the kernel {p.kernel.kind} does not take it so")
    if len(argument.values) < 2:
        yield Problem("argument.values", "expected two or more")
    whole = all(value == int(value) for value in argument.values)
    if argument.what == "number" and argument.given == "float":
        yield Problem("argument.given", "expected int or tensor of a number")
    if not whole and (argument.what == "number" or argument.given == "int"):
        yield Problem("argument.values", "expected integers")
    if len(set(argument.values)) < len(argument.values):
        yield Problem("argument.values", "expected another value in each call")
    if argument.what == "number" and any(not call.fresh_mods for call in p.calls):
        yield Problem("calls", "expected fresh_mods where the mods capture another number")


def _in_place(p: Program) -> Iterator[Problem]:
    if not p.in_place:
        return
    if not p.draws or p.calls:
        yield Problem("in_place", "expected further draws of one shape")
    if not plugin_of(p).rewritable:
        yield Problem("in_place", f"expected false: the kernel is {p.kernel.kind}")
    if any(getattr(p, name).layout.expand for name in ("q", "k", "v")):
        yield Problem("in_place", "expected no layout that expands: it cannot be written")
