"""Rendered programs, executed in this process, and the sizes and indices they are made with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.indices import Index
from attnfuzz.generators.model.program import Modes, Program, Shape
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source

B, H, LQ, LKV = 2, 4, 9, 12
SHAPE = Shape(batch=B, q_heads=H, kv_heads=2, q_len=LQ, kv_len=LKV, head_dim=8)
Q, KV, HEAD, BATCH = (Index(axis=axis) for axis in ("q_idx", "kv_idx", "h", "b"))
FLEX = Flex(block_mask=BlockMaskSpec(batch=True, heads=True), enable_gqa=True)


def eagerly(program: Program) -> Program:
    """The program as it is run without a compiler, and without what only compiled ones have."""
    surround = replace(program.surround, region=False)
    return replace(program, compile=None, modes=Modes(), surround=surround)


def load(program: Program) -> ModuleType:
    """The rendered module, executed."""
    assert problems(program) == []
    module = ModuleType("rendered_program")
    sys.modules[module.__name__] = module
    exec(compile(source(program), "<program>", "exec"), module.__dict__)
    return module


def calls_of(module: ModuleType | Mapping[str, Any]) -> list[tuple[int, ...]]:
    """What `inputs` of a rendered module is given in each of its calls."""
    names = vars(module) if isinstance(module, ModuleType) else module
    seeds: list[tuple[int, ...]] = [(seed,) for seed in names.get("SEEDS", ())]
    numbers: list[tuple[Any, ...]] = [(number,) for number in names.get("ARGUMENTS", ())]
    one_shape = [()] * max(1, len(seeds), len(numbers))
    shapes: list[tuple[int, ...]] = names.get("CALLS", one_shape)
    given = zip(shapes, seeds or [()] * len(shapes), numbers or [()] * len(shapes), strict=True)
    return [(*shape, *seed, *number) for shape, seed, number in given]


def in_float64(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with float tensors in float64, with gradients where they had them."""
    return tuple(
        t.detach().double().requires_grad_(t.requires_grad)
        if isinstance(t, torch.Tensor) and t.is_floating_point()
        else t
        for t in args
    )


def masks_seen(module: ModuleType) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each call, what attention gives and what the reference gives, in float64."""
    pairs = []
    for shape in calls_of(module):
        args = [
            t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t
            for t in module.inputs(*shape)
        ]
        pairs.append((module.attention(*args), module.reference(*args)))
    return pairs


def results(program: Program, fn: str) -> list[dict[str, torch.Tensor]]:
    """What the program's function of that name gives in float64, for each call."""
    module = load(program)
    every = []
    for shape in calls_of(module):
        args = in_float64(module.inputs(*shape))
        torch.manual_seed(1)
        every.append(module.run(getattr(module, fn), args))
    return every


def assert_means_itself(program: Program) -> None:
    """Raises AssertionError, with the name of a result first, where attention is not what the
    reference says."""
    pairs = zip(results(program, "attention"), results(program, "reference"), strict=True)
    for actual, expected in pairs:
        assert actual.keys() == expected.keys()
        for name in actual:
            torch.testing.assert_close(
                actual[name], expected[name], rtol=1e-9, atol=1e-9, msg=f"{name}: {program}"
            )
