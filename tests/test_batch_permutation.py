"""When the batches of a program may be permuted: nothing of a batch's own may stay where it was."""

from __future__ import annotations

from typing import Any

import pytest

from attnfuzz.actors.sandbox.job import batches_are_independent
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.masks import AllTrue
from attnfuzz.generators.model.program import Program, Shape


@pytest.mark.parametrize(
    "kernel, independent",
    [
        ({}, True),
        ({"mask_bias": True, "broadcast": ("b",)}, True),
        ({"mask_bias": True, "broadcast": ()}, False),
    ],
)
def test_an_additive_mask_may_be_of_a_batch(kernel: dict[str, Any], independent: bool) -> None:
    shape = Shape(batch=2, q_len=8, kv_len=8)
    sdpa = Sdpa(mask_form="float", **{"broadcast": (), **kernel})
    assert batches_are_independent(Program(kernel=sdpa, shape=shape, mask=AllTrue())) is independent
