"""What a zygote does once, before its first program that compiles, so that its children need not:
first compiles.

They find the vector instructions, initialise Inductor's patterns and lowerings, and build the
precompiled header of the default flags; children inherit all of it by fork. On two quiet cores
that takes 30 s the first time on a machine, 5 s later, and makes each cold compile in a child a
CPU second cheaper. What a program's own compile consists of stays cold: no graph cache is written,
and what was compiled here is forgotten. What the C++ compiler makes is kept (`compiled_once`).

Needs torch and the standard library; only the zygote loads this file. This is the CPU's; other
targets' are in their `child.py`.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from attnfuzz.actors.sandbox.compiled_once import KEPT, keep_compiled
from attnfuzz.actors.sandbox.headers import built_in, drop_unfinished, vouch_for


def warm_up(headers: Path) -> None:
    """Compiles small functions with the defaults, some forward and backward.

    `headers` is the folder shared by all zygotes of this user; they take turns until it has
    something. Other temporary files go to the current folder from now on. Raises what
    torch.compile raises, for instance when there is no C++ compiler.
    """
    import torch
    import torch._inductor.codecache  # looks at TMPDIR, once, for where headers are to go

    keep_files_here()
    with open(headers / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        drop_unfinished(headers)
        there = frozenset(built_in(headers))
        if there:  # probably all that is needed: others need not wait for this one
            fcntl.flock(lock, fcntl.LOCK_SH)
        with (
            torch._inductor.config.patch(fx_graph_cache=False),
            torch._functorch.config.patch(enable_autograd_cache=False),
        ):
            for compile_one in (_plain, _sdpa, _sdpa_to_aot, _flex):
                compile_one()
                torch._dynamo.reset()
        new = [built for built in built_in(headers) if built not in there]
        if new:
            fcntl.flock(lock, fcntl.LOCK_EX)  # when nobody else is building it
        for built in new:
            if built.exists():
                vouch_for(built)
    forget()
    keep_compiled(Path.cwd() / KEPT)


def keep_files_here() -> None:
    """Temporary files go to the current folder from now on."""
    os.environ["TMPDIR"] = os.getcwd()
    tempfile.tempdir = None


def forget() -> None:
    """Drops the kernels compiled here and what was counted, so that children begin at nothing."""
    import torch
    from torch._inductor.codecache import CppCodeCache, CppPythonBindingsCodeCache

    CppCodeCache.cache.clear()
    CppPythonBindingsCodeCache.cache.clear()
    torch._dynamo.utils.counters.clear()
    torch._inductor.metrics.reset()
    torch.manual_seed(0)


def _plain() -> None:
    import torch

    x = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
    torch.compile(lambda x: torch.softmax(x @ x.mT, -1))(x).sum().backward()


def _sdpa(backend: str = "inductor") -> None:
    import torch

    q = torch.linspace(-1, 1, 512).reshape(1, 2, 16, 16).requires_grad_()
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.compile(lambda q: attention(q, q, q, is_causal=True), backend=backend)(q).sum().backward()


def _sdpa_to_aot() -> None:
    _sdpa("aot_eager")


def _flex() -> None:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # Three tensors: up to 2.12 torch compiles none for the CPU where they share their memory.
    q, k, v = (torch.linspace(-1, 1, 512).reshape(1, 2, 16, 16) for _ in range(3))
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
    torch.compile(flex_attention)(q, k, v, lambda s, b, h, i, j: s * 2 + j, block_mask=causal)
