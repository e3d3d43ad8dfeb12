"""The process group of simulated ranks: what its reductions give, and that it keeps nothing."""

from __future__ import annotations

import subprocess
import sys

RANKS = """
import torch
import torch.distributed as dist
from attnfuzz.actors.child.simulation.group import install
from attnfuzz.actors.child.simulation.turns import Stuck, Turns

turns = Turns(3)
meeting = install(turns)
"""
REDUCED = """
NAN = float("nan")


def work(rank):
    dist.init_process_group("gloo")
    reduced = []
    for op, value in (
        ("SUM", torch.tensor([1.0, 2.0**-8, 2.0**-8][rank], dtype=torch.bfloat16)),
        ("AVG", torch.tensor([1.0, 2.0, 6.0][rank])),
        ("MAX", torch.tensor([1.0, NAN, 3.0][rank])),
        ("MIN", torch.tensor([4, 2, 3][rank])),
        ("SUM", torch.tensor([4, 2, 3][rank])),
    ):
        dist.all_reduce(value, op=getattr(dist.ReduceOp, op))
        reduced.append(value.item())
    parts = [torch.empty(2) for _ in range(3)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    return reduced, torch.cat(parts).tolist()


for reduced, parts in turns.each(work):
    print(reduced, parts)
print(len(meeting.brought), len(meeting.readers))
"""
OTHER_SIZE = """

def work(rank):
    dist.init_process_group("gloo")
    dist.all_reduce(torch.zeros(3 if rank == 2 else 2))


try:
    turns.each(work)
except Stuck as stuck:
    for rank, why in stuck.waits.items():
        print(rank, why.partition(", ")[0])
"""


def test_reductions_are_right_and_nothing_is_kept() -> None:
    """Half precision is summed in float32: 1 + 2**-8 + 2**-8 is 1 where each step is rounded."""
    *ranks, kept = output_of(RANKS + REDUCED)
    assert ranks == ["[1.0078125, 3.0, nan, 2, 9] [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]"] * 3
    assert kept == "0 0"


def test_ranks_that_bring_other_sizes_wait_for_one_another() -> None:
    waits = sorted(output_of(RANKS + OTHER_SIZE))
    assert waits == [
        "0 all_reduce of 2 float32", "1 all_reduce of 2 float32", "2 all_reduce of 3 float32",
    ]  # fmt: skip


def output_of(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
