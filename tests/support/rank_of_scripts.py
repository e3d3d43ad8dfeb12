"""One of two ranks that run scripts one after the other, as `torchrun` would each of them:

python rank_of_scripts.py RANK FOLDER

Each is run as it is, and again where what the program computes first is half as much again: its
gradient, or what it gathers at its end; on one rank alone where they are to have it alike. Every
assertion or exception is printed, as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel as cp
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

TOO_MUCH = 1.5


def scaled(function: Callable[..., Any], *, first: bool = False) -> Callable[..., Any]:
    """`function` with results that are too large: all of them, or those of the `first` call."""
    calls = 0

    @wraps(function)
    def wrong(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        given = function(*args, **kwargs)
        if first and calls > 1:
            return given
        return given * TOO_MUCH if torch.is_tensor(given) else [t * TOO_MUCH for t in given]

    return wrong


@contextmanager
def broken(of: str) -> Iterator[None]:
    """The program's result is wrong: the output, or the gradient that it is asked for first."""
    if of.endswith("out"):
        gathered = scaled(DTensor.full_tensor)
        unsharded = scaled(cp.context_parallel_unshard)
        with (
            mock.patch.object(DTensor, "full_tensor", gathered),
            mock.patch.object(cp, "context_parallel_unshard", unsharded),
        ):
            yield
        return
    with mock.patch.object(torch.autograd, "grad", scaled(torch.autograd.grad, first=True)):
        yield


def run(script: Path, bad: bool) -> str:
    """What the script ends with; "" at its end."""
    try:
        code = compile(script.read_text(), str(script), "exec")
        with broken(script.stem) if bad else nullcontext():
            exec(code, {"__name__": "__main__"})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def warm_up() -> None:
    """Loads what DTensor loads when it is used first, with ranks that are not there."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    mesh = dist.init_device_mesh("cpu", (2,))
    part = DTensor.from_local(torch.ones(2, requires_grad=True), mesh)
    part = part.redistribute(mesh, [Shard(0)]).to_local()
    DTensor.from_local(part, mesh, [Shard(0)]).full_tensor().sum().backward()
    dist.destroy_process_group()


def main(rank: int, folder: Path) -> None:
    """Runs the scripts of `folder`, in the order of their names, each in a process of its own."""
    torch.set_num_threads(1)
    connect = dist.init_process_group
    warm_up()
    for script in sorted(folder.glob("*.py")):
        for bad in (False, True):
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                continue
            meeting = f"file://{folder}/{script.stem}-{bad}"
            dist.init_process_group = partial(connect, init_method=meeting, rank=rank, world_size=2)
            everywhere = "replicas" not in script.stem
            said = run(script, bad and (everywhere or rank == 0))
            print(json.dumps([script.stem, bad, said]), flush=True)
            os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
