"""A BlockMask with the order in which a deterministic backward pass adds to dq."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.flex.steps import Adjusted, Copied, Cut, Rebuilt, Sliced, Step
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Program, Shape
from attnfuzz.generators.model.validity import problems
from tests.support.rendered import load, masks_seen

Order = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


def program(*steps: Step, **options: Any) -> Program:
    options = {"dq_write_order": "descending", **options}
    spec = BlockMaskSpec(block_size=(4, 8), steps=steps, **options)
    shape = Shape(batch=2, q_heads=2, kv_heads=2, q_len=21, kv_len=30, head_dim=8)
    written = Program(kernel=Flex(block_mask=spec), shape=shape, mask=Causal(offset=5))
    assert not problems(written)
    return written


PROGRAMS = {
    "descending": program(),
    "ascending": program(dq_write_order="ascending"),
    "sliced": program(Sliced(batch=Cut(start=1), rows=Cut(how="tensor", start=1)), batch=True),
    "adjusted": program(Adjusted(extra=(9, 3)), dq_write_order="ascending"),
    "copied": program(Copied(), Copied(through="tree")),
    "forgotten": program(Rebuilt(of="own"), Copied(through="as_tuple")),
    "without full blocks": program(full_blocks=False),
}


def is_right(written: Program) -> bool:
    return all(torch.allclose(actual, expected) for actual, expected in masks_seen(load(written)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_torch_numbers_the_blocks_of_a_row_in_order(name: str) -> None:
    assert is_right(PROGRAMS[name])
    assert is_right(replace(PROGRAMS[name], kernel=Flex(block_mask=BlockMaskSpec())))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_order_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compute: Order = flex._compute_dq_write_order_from_block_mask

    def other(block_mask: flex.BlockMask, dq_kv_order: bool | None = False) -> Any:
        return compute(block_mask, dq_kv_order=not dq_kv_order)

    monkeypatch.setattr(flex, "_compute_dq_write_order_from_block_mask", other)
    assert not is_right(PROGRAMS[name])
    assert is_right(replace(PROGRAMS[name], kernel=Flex(block_mask=BlockMaskSpec())))


@pytest.mark.parametrize("name", ["descending", "ascending", "adjusted"])
def test_the_order_is_told_without_the_dense_mask(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `to_dense` has wrong is wrong elsewhere."""
    monkeypatch.setattr(flex.BlockMask, "to_dense", lambda mask: torch.zeros(1, 1, 1, 1))
    assert is_right(PROGRAMS[name])
