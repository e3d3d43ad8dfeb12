"""Which imports a text needs, found by the names in it."""

from __future__ import annotations

import re

from attnfuzz.generators.render.fold import WIDTH

MODULES = {
    "ctypes": "import ctypes", "functools": "import functools", "random": "import random",
    "time": "import time", "traceback": "import traceback", "warnings": "import warnings",
    "torch": "import torch", "dist": "import torch.distributed as dist",
    "F": "import torch.nn.functional as F",
    "cp": "import torch.distributed.tensor.experimental._context_parallel as cp",
}  # fmt: skip
STANDARD = ("ctypes", "functools", "random", "time", "traceback", "warnings")
FROM = {
    "torch.distributed._local_tensor": ("LocalTensorMode",),
    "torch.distributed._functional_collectives": (
        "all_gather_tensor_autograd", "all_to_all_single_autograd",
    ),
    "torch.distributed.fsdp": ("fully_shard",),
    "torch.nn.parallel": ("DistributedDataParallel",),
    "torch.distributed.device_mesh": ("init_device_mesh",),
    "torch.distributed.tensor": ("DTensor", "Partial", "Replicate", "Shard"),
    "torch.distributed.tensor.parallel": ("parallelize_module",),
    "torch.testing._internal.distributed.fake_pg": ("FakeStore",),
    "torch.nn.attention": ("SDPBackend", "sdpa_kernel"),
    "torch.nn.attention.bias": ("causal_lower_right", "causal_upper_left"),
    "torch.nn.attention.experimental._paged_attention": ("PagedAttention",),
    "torch.nn.attention.flex_attention": (
        "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask",
        "flex_attention", "noop_mask", "or_masks",
    ),
    "torch.nn.attention.varlen": ("varlen_attn", "varlen_attn_out"),
    "torch.utils.checkpoint": ("checkpoint", "create_selective_checkpoint_contexts"),
}  # fmt: skip


IMPORTED = frozenset({"os", *MODULES, *(name for names in FROM.values() for name in names)})
"""The names that imports may define."""


def imports(text: str, extra: list[str]) -> list[str]:
    """Import statements for `text`, the standard library's first; `extra` are
    further ones."""
    code = re.sub(r'"[^"\n]*"', '""', text)
    used = {name for name in MODULES if re.search(rf"(?<![\w.]){name}\.", code)}
    standard = [MODULES[name] for name in STANDARD if name in used]
    others = [MODULES[name] for name in MODULES if name in used and name not in STANDARD]
    named = list(extra)
    for module, names in FROM.items():
        found = [name for name in names if re.search(rf"(?<![\w.]){name}\b", code)]
        if found:
            named.append(f"from {module} import {', '.join(found)}")
    others += [line for statement in sorted(named) for line in _fit(statement)]
    return [*standard, *([""] if standard and others else []), *others]


def _fit(statement: str) -> list[str]:
    """A `from` import, with one name to a line where it is too long."""
    if len(statement) <= WIDTH:
        return [statement]
    head, _, names = statement.partition(" import ")
    return [f"{head} import (", *(f"    {name}," for name in names.split(", ")), ")"]
