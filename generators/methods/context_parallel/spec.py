"""torch's context parallelism of SDPA, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.model.indices import STRICT


@dataclass(frozen=True, kw_only=True)
class ContextParallel:
    """`torch.distributed.tensor.experimental._context_parallel` around SDPA: a ring over the length
    that each rank holds a part of. `rotate`: `set_rotate_method`. `balance`: the load balancer by
    which the sequence is reordered before it is sharded; a causal mask needs one, or `none`, and
    without a mask torch takes `none` alone. `operator`: the fused SDPA that is called, which torch
    has for cards; on a CPU the script registers the CPU's fused SDPA under its name. `return_lse`:
    the log-sum-exp that torch merges is a result too; the operator gives it no gradient. `by`: a
    module around SDPA that `_ContextParallel` parallelizes, or the context manager
    `context_parallel`, which shards copies of q, k and v in place and replaces SDPA in all of the
    process, so that ranks are processes."""

    __pydantic_config__ = STRICT
    kind: Literal["context_parallel"] = "context_parallel"
    rotate: Literal["allgather", "alltoall"] = "allgather"
    balance: Literal["none", "head_tail"] = "none"
    operator: Literal["flash", "efficient"] = "flash"
    return_lse: bool = False
    by: Literal["module", "manager"] = "module"
