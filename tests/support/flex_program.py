"""flex_attention as it is trained: causal, bfloat16, forward and backward, compiled."""

from __future__ import annotations

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Compile, Input, Program, Shape, Training

BF16 = Input(dtype="bfloat16")


def trained_flex(shape: Shape) -> Program:
    """The program of that shape."""
    return Program(
        kernel=Flex(block_mask=BlockMaskSpec()),
        mask=Causal(),
        shape=shape,
        q=BF16,
        k=BF16,
        v=BF16,
        compile=Compile(),
        training=Training(),
    )
