"""Every method by which ranks share one attention, at every degree and in each way, judged.

    PYTHONPATH=. python benchmarks/parallel.py [--degree 8] [--way processes] [--method ring]
    PYTHONPATH=. python benchmarks/parallel.py --target virtual-sm90 --toolchain PYTHON
        [--backend aot_eager]

One ordinary program for each cell: a causal mask of two documents (of one where a method takes no
other), forward and backward (forward alone for flex_attention, without backward on a CPU, and for
torch's context manager), float32, eager. Where ranks have lengths of their own, every third is 0,
and no other as long as the next. A cell says what became of it and the CPU seconds that its
processes used. On a virtual target, where one rank stands for all, they are bfloat16, each rank has
32 positions, and flex_attention trains.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.targets.target import Target
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.methods.flex_context_parallel.plugin import BLOCK
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.methods.specs import (
    AllGather,
    ContextParallel,
    FlexContextParallel,
    Heads,
    Ring,
    Ulysses,
)
from attnfuzz.generators.model.masks import Causal, Documents
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.validity import problems

DEGREES = (1, 2, 4, 8, 16, 32, 64)
MOST_PROCESSES = 8
LONGEST = 4096
PATIENCE = 10.0

METHODS: dict[str, Any] = {
    "heads": Heads(),
    "all_gather, DTensor": AllGather(),
    "all_gather, collective": AllGather(by="collective"),
    "ulysses, DTensor": Ulysses(),
    "ulysses, collective": Ulysses(by="collective"),
    "ring, contiguous": Ring(),
    "ring, zigzag": Ring(order="zigzag"),
    "ring, striped": Ring(order="striped"),
    "ring of two-way ulysses": Ring(order="zigzag", ulysses=2),
    **{
        f"context_parallel, {operator}, {rotate}, {balance}": ContextParallel(
            operator=operator, rotate=rotate, balance=balance
        )
        for operator in ("flash", "efficient")
        for rotate in ("allgather", "alltoall")
        for balance in ("none", "head_tail")
    },
    **{
        f"flex_context_parallel, {balance}": FlexContextParallel(balance=balance)
        for balance in ("none", "head_tail", "per_document", "ptrr")
    },
    "ring, contiguous, return_lse": Ring(return_lse=True),
    "context_parallel, flash, alltoall, head_tail, return_lse": ContextParallel(
        rotate="alltoall", balance="head_tail", return_lse=True
    ),
    "flex_context_parallel, none, return_lse": FlexContextParallel(),
    "context_parallel, flash, allgather, head_tail, manager": ContextParallel(
        balance="head_tail", by="manager"
    ),
    "ring, contiguous, lengths": Ring(),
    "all_gather, collective, lengths": AllGather(by="collective"),
    **{
        f"{name}, {module}": method
        for module in ("fsdp", "ddp")
        for name, method in (
            ("ring, contiguous", Ring()),
            ("all_gather, DTensor", AllGather()),
            ("ulysses, DTensor", Ulysses()),
            ("context_parallel, flash, allgather, none", ContextParallel()),
        )
    },
}
PARTS = (3, 0, 5)
"""Lengths of ranks that have lengths of their own, over and over."""


def cell(name: str, degree: int, way: Any) -> Program:
    """The program of a cell."""
    whole = program(METHODS[name], degree, way)
    assert whole.mesh is not None
    last = name.rpartition(", ")[2]
    if last in ("fsdp", "ddp"):
        module: Any = last
        mesh = replace(whole.mesh, module=module)
        return replace(whole, mesh=mesh, surround=Surround(projections=True))
    if last == "lengths":
        lengths = (PARTS * degree)[:degree]
        shape = replace(whole.shape, q_len=sum(lengths), kv_len=sum(lengths))
        return replace(whole, mesh=replace(whole.mesh, lengths=lengths), shape=shape)
    if last == "return_lse" and isinstance(whole.kernel, Flex):
        return replace(whole, kernel=replace(whole.kernel, return_lse=True))
    return replace(whole, training=None) if last == "manager" else whole


def program(method: Any, degree: int, way: Any) -> Program:
    """An ordinary program of that method."""
    kernel, mask, length = Handwritten(), Documents(causal=True), 4 * degree
    ranks: Any = "processes" if way == "processes" and degree > 1 else "simulated"
    heads = degree if isinstance(method, Heads | Ulysses) else getattr(method, "ulysses", 1)
    whole = Program(
        kernel=kernel,
        mask=mask,
        training=Training(),
        shape=Shape(q_heads=heads, kv_heads=heads, q_len=length, kv_len=length, head_dim=8),
        mesh=Mesh(world_size=degree, ranks=ranks, method=method),
    )
    match method:
        case Ring():
            return replace(whole, kernel=Sdpa(backend="math"))
        case ContextParallel():
            return replace(whole, kernel=Sdpa(mask_form="is_causal"), mask=Causal())
        case FlexContextParallel():
            length = BLOCK * degree * (2 if method.balance == "per_document" else 1)
            shape = replace(whole.shape, q_len=length, kv_len=length)
            flex = Flex(block_mask=BlockMaskSpec())
            return replace(whole, kernel=flex, training=None, shape=shape)
    return whole


def main(
    degree: Annotated[list[int] | None, typer.Option(help="Degrees, all by default.")] = None,
    way: Annotated[list[str] | None, typer.Option(help="simulated, processes.")] = None,
    method: Annotated[str, typer.Option(help="Only methods that begin with this.")] = "",
    target: Annotated[str, typer.Option(help="cpu, or a virtual one.")] = "cpu",
    toolchain: Annotated[str, typer.Option(help="An interpreter with torch.")] = sys.executable,
    backend: Annotated[str, typer.Option(help="Of torch.compile, where it may be.")] = "",
    data: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    found: dict[str, dict[str, str]] = {}
    place = TARGETS[target]
    ways = way or (["simulated", "processes"] if place.ranks_seen == "all" else [target])
    degrees = degree or DEGREES
    columns = [
        (each, one)
        for each in ways
        for one in degrees
        if each != "processes" or 1 < one <= MOST_PROCESSES
    ]
    with Sandbox(toolchain, target=target, limits=place.limits) as sandbox:
        for name in METHODS:
            if name.startswith(method):
                found[name] = {
                    f"{each} {one}": _cell(sandbox, place, cell(name, one, each), backend)
                    for each, one in columns
                }
                if not data:
                    print(name, found[name], flush=True)
    if data:
        print(json.dumps(found, indent=1))
        return
    table = Table(title=f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    for column in ("method", *(f"{each} {one}" for each, one in columns)):
        table.add_column(column)
    for name, cells in found.items():
        table.add_row(name, *cells.values())
    Console(width=220).print(table)


def _compiled(whole: Program, backend: Any) -> Program:
    """`whole`, compiled as far as torch compiles its method."""
    method = method_of(whole)
    assert method is not None
    via: Any = "compile" if method.traced else "local"
    return replace(whole, compile=Compile(backend=backend, via=via)) if backend else whole


def _as_on_cards(whole: Program) -> Program:
    """`whole` in half precision, with 32 positions for each rank, and trained where it can be."""
    assert whole.mesh is not None
    shape, half = whole.shape, Input(dtype="bfloat16")
    if not isinstance(whole.kernel, Flex) and not whole.mesh.lengths:
        length = 32 * whole.mesh.degree
        shape = replace(shape, q_len=length, kv_len=length)
    shape = replace(shape, head_dim=64)
    manager = getattr(whole.mesh.method, "by", "") == "manager"
    training = None if manager else Training()
    return replace(whole, q=half, k=half, v=half, shape=shape, training=training)


def _cell(sandbox: Sandbox, place: Target, each: Program, backend: str) -> str:
    each = _compiled(each if place.ranks_seen == "all" else _as_on_cards(each), backend)
    if each.shape.q_len > LONGEST:
        return f"longer than {LONGEST}"
    if wrong := problems(each):
        return f"{wrong[0].key}: {wrong[0].sentence}"
    if unfit := place.unfit(each):
        return unfit
    job = place.job(each, for_program(each), Deadlines().times(PATIENCE))
    outcome = sandbox.run(place.source(each), job)
    what = outcome.rejection or outcome.status
    if outcome.failure is not None:
        what = f"failed: {outcome.failure.kind.value}"
    return f"{what} {outcome.cost.cpu_s:.1f}"


if __name__ == "__main__":
    typer.run(main)
