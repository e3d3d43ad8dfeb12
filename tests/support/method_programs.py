"""A program of every method by which ranks share one attention, and less ordinary ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.methods.specs import (
    AllGather,
    ContextParallel,
    FlexContextParallel,
    Heads,
    Ring,
    Ulysses,
)  # fmt: skip
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.shrink.candidates import candidates

DOCUMENTS = masks.Documents(causal=True)
PER_HEAD = masks.And(left=masks.Causal(), right=masks.Documents(per_batch=True))


def program(method: Any, degree: int = 4, **changes: Any) -> Program:
    """An ordinary program of that method: a mask, gradients, two heads for each rank."""
    by_heads = isinstance(method, Heads | Ulysses)
    heads = 2 * degree if by_heads else 2
    kernel: Any = Handwritten()
    mask: Any = DOCUMENTS
    training: Training | None = Training()
    length = 4 * degree
    if isinstance(method, Ring):
        kernel = Sdpa(backend="math")
    if isinstance(method, ContextParallel):
        kernel, mask = Sdpa(mask_form="is_causal"), masks.Causal()
    if isinstance(method, FlexContextParallel):
        kernel, length, training = Flex(block_mask=BlockMaskSpec()), 256 * degree, None
    whole = Program(
        kernel=kernel, mask=mask, training=training,
        shape=Shape(q_heads=heads, kv_heads=heads, q_len=length, kv_len=length, head_dim=8),
        mesh=Mesh(world_size=degree, method=method),
    )  # fmt: skip
    return replace(whole, **changes)


def reduced(start: Program, fails: Any) -> Program:
    """Where minimization ends with that predicate in place of a failure."""
    best = start
    while (simpler := next((one for one in candidates(best) if fails(one)), None)) is not None:
        best = simpler
    return best


METHODS = {
    "heads": Heads(),
    "all-gather": AllGather(),
    "all-gather-collective": AllGather(by="collective"),
    "ulysses": Ulysses(),
    "ulysses-collective": Ulysses(by="collective"),
    "ring": Ring(),
    "ring-zigzag": Ring(order="zigzag"),
    "ring-striped": Ring(order="striped"),
    "ring-lse": Ring(order="zigzag", return_lse=True),
    "ring-of-ulysses": Ring(order="zigzag", ulysses=2),
    "context-parallel": ContextParallel(),
    "context-parallel-balanced": ContextParallel(balance="head_tail", rotate="alltoall"),
    "context-parallel-efficient": ContextParallel(balance="head_tail", operator="efficient"),
    "context-parallel-lse": ContextParallel(balance="head_tail", return_lse=True),
    "flex-context-parallel": FlexContextParallel(),
    "flex-context-parallel-ptrr": FlexContextParallel(balance="ptrr"),
    "flex-context-parallel-documents": FlexContextParallel(balance="per_document"),
}
BY_MANAGER = ContextParallel(balance="head_tail", rotate="alltoall", by="manager")
UNEVEN = Shape(batch=2, q_heads=2, kv_heads=2, q_len=7, kv_len=5, head_dim=8)
PROGRAMS = {name: program(method) for name, method in METHODS.items()} | {
    "all-gather-uneven": program(AllGather(), shape=UNEVEN),
    "ring-uneven": program(Ring(), shape=UNEVEN),
    "ring-uneven-lse": program(Ring(return_lse=True), shape=UNEVEN),
    "ring-of-ulysses-lse": program(Ring(ulysses=2, return_lse=True), training=None),
    "context-parallel-local-lse": program(
        ContextParallel(return_lse=True, rotate="alltoall"), training=None
    ),
    "context-parallel-manager": program(
        BY_MANAGER, training=None, mesh=Mesh(world_size=2, ranks="processes", method=BY_MANAGER)
    ),
    "context-parallel-manager-compiled": program(
        BY_MANAGER,
        training=None,
        compile=Compile(backend="aot_eager", via="local"),
        mesh=Mesh(world_size=2, ranks="processes", method=replace(BY_MANAGER, balance="none")),
    ),
    "flex-context-parallel-lse": program(
        FlexContextParallel(balance="head_tail"),
        1,
        kernel=Flex(block_mask=BlockMaskSpec(), return_lse=True),
    ),
    "ring-lengths": program(
        Ring(),
        shape=replace(UNEVEN, q_len=9, kv_len=9),
        mesh=Mesh(world_size=4, method=Ring(), lengths=(3, 0, 5, 1)),
    ),
    "all-gather-lengths": program(
        AllGather(by="collective"),
        shape=replace(UNEVEN, q_len=9, kv_len=9),
        mesh=Mesh(world_size=3, method=AllGather(by="collective"), lengths=(0, 2, 7)),
    ),
    "ring-under-fsdp": program(
        Ring(),
        2,
        surround=Surround(projections=True, checkpoint="full"),
        mesh=Mesh(world_size=2, method=Ring(), module="fsdp"),
    ),
    "all-gather-under-fsdp": program(
        AllGather(),
        2,
        surround=Surround(projections=True),
        mesh=Mesh(world_size=4, data=2, method=AllGather(), module="fsdp"),
        shape=Shape(batch=2, q_heads=2, kv_heads=2, q_len=8, kv_len=8, head_dim=8),
    ),
    "context-parallel-under-fsdp": program(
        ContextParallel(),
        2,
        surround=Surround(projections=True),
        mesh=Mesh(world_size=2, method=ContextParallel(), module="fsdp"),
    ),
    "ulysses-under-ddp": program(
        Ulysses(),
        2,
        surround=Surround(projections=True, checkpoint="full"),
        mesh=Mesh(world_size=2, method=Ulysses(), module="ddp"),
    ),
    "ring-half-precision": program(
        Ring(), q=Input(dtype="bfloat16"), k=Input(dtype="bfloat16"), v=Input(dtype="bfloat16")
    ),
    "context-parallel-checkpointed": program(
        ContextParallel(balance="head_tail"),
        surround=Surround(checkpoint="full"),
    ),
    "ulysses-of-two-dimensions": program(
        Ulysses(),
        compile=Compile(backend="aot_eager"),
        mask=PER_HEAD,
        shape=Shape(batch=4, q_heads=4, kv_heads=4, q_len=8, kv_len=8, head_dim=8),
        kernel=Sdpa(broadcast=("h",)),
        mesh=Mesh(world_size=8, data=2, tensor=2, method=Ulysses()),
    ),
    "context-parallel-local": program(
        ContextParallel(), training=None, compile=Compile(backend="aot_eager", via="local")
    ),
}

LESS_ORDINARY = [
    name
    for name in PROGRAMS
    if name not in METHODS and name.startswith(("all-gather", "ring", "context-parallel"))
]
LESS_ORDINARY.remove("context-parallel-local")  # case b0888010
LESS_ORDINARY.remove("context-parallel-manager-compiled")  # seconds
LESS_ORDINARY.append("ulysses-under-ddp")
