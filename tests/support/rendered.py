"""Rendered programs, executed in this process, and the sizes and indices they are made with."""

from __future__ import annotations

import sys
from types import ModuleType

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.indices import Index
from attnfuzz.generators.model.program import Program, Shape
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source

B, H, LQ, LKV = 2, 4, 9, 12
SHAPE = Shape(batch=B, q_heads=H, kv_heads=2, q_len=LQ, kv_len=LKV, head_dim=8)
Q, KV, HEAD, BATCH = (Index(axis=axis) for axis in ("q_idx", "kv_idx", "h", "b"))
FLEX = Flex(block_mask=BlockMaskSpec(batch=True, heads=True), enable_gqa=True)


def load(program: Program) -> ModuleType:
    """The rendered module, executed."""
    assert problems(program) == []
    module = ModuleType("rendered_program")
    sys.modules[module.__name__] = module
    exec(compile(source(program), "<program>", "exec"), module.__dict__)
    return module
