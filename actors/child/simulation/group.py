"""The process group of simulated ranks: a collective is done when the last of them has come.

Each rank gets what its part of a collective gives, computed of what all have brought, in the order
of the ranks. A rank that issues another collective than the others waits for them as it would with
real processes: for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
from torch.futures import Future
from torch.testing._internal.distributed import multi_threaded_pg

from attnfuzz.actors.child.simulation.turns import Turns

NAME = "simulated"

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "SUM": torch.add, "AVG": torch.add, "MAX": torch.maximum, "MIN": torch.minimum,
}  # fmt: skip
"""What puts two parts together."""


class Meeting:
    """What the ranks have brought so far: to collectives, by group and number, and what was sent
    and not yet received, by sender and receiver."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.brought: dict[tuple[Any, ...], dict[int, Any]] = {}
        self.readers: dict[tuple[Any, ...], int] = {}
        """How many ranks have read what all have brought. The last one takes it away."""
        self.sent: dict[tuple[Any, ...], list[Tensor]] = {}
        self.issued: dict[int, list[str]] = {rank: [] for rank in range(turns.size)}
        """The collectives that each rank has issued, in their order."""

    def read(self, collective: tuple[Any, ...], size: int) -> None:
        """One of `size` ranks has what was brought to `collective`. What all have read is freed: 64
        ranks would else keep 64 copies of every gradient."""
        self.readers[collective] = self.readers.get(collective, 0) + 1
        if self.readers[collective] == size:
            del self.readers[collective], self.brought[collective]

    def forget(self) -> None:
        """Before a run: what an earlier one has left, as it stopped, is not this one's."""
        self.brought.clear()
        self.readers.clear()
        self.sent.clear()
        for issued in self.issued.values():
            issued.clear()


class SimulatedGroup(dist.ProcessGroup):
    """A process group whose ranks are threads that take turns."""

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._meeting, self._rank, self._size = meeting, rank, size
        self._count = 0

    # What torch asks of a group that is written in Python.

    def size(self) -> int:
        """How many ranks it has."""
        return self._size

    def getBackendName(self) -> str:
        """Its back-end's name."""
        return NAME

    @property
    def group_name(self) -> str:
        """The name that torch knows it by."""
        return str(dist.distributed_c10d._world.pg_names[self])

    @property
    def pg_name(self) -> str:
        """The same."""
        return self.group_name

    def _meet(self, what: str, mine: Any) -> list[Any]:
        """What all ranks of the group have brought to this collective."""
        ranks = tuple(dist.get_process_group_ranks(self))
        turns = self._meeting.turns
        self._count += 1
        self._meeting.issued[turns.rank].append(f"{what} over {ranks}")
        collective = (ranks, self._count, what)
        brought = self._meeting.brought.setdefault(collective, {})
        brought[self._rank] = mine
        why = f"{what}, the collective number {self._count} over the ranks {ranks}"
        turns.wait(why, lambda: len(brought) == self._size)
        self._meeting.read(collective, self._size)
        return [brought[rank] for rank in range(self._size)]

    def _meet_alike(self, what: str, mine: Tensor) -> list[Tensor]:
        """As `_meet`, in a collective to which all bring tensors of one size: where they do not,
        they wait for one another, as processes of gloo are aborted."""
        size = f"{mine.numel()} {str(mine.dtype).removeprefix('torch.')}"
        return self._meet(f"{what} of {size}", _copy(mine))

    # Collectives. Their names and arguments are those of torch.distributed.ProcessGroup.

    def allgather(
        self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Any:
        """Gives all what all have."""
        for output, part in zip(outputs[0], self._meet_alike("all_gather", inputs[0]), strict=True):
            _write(output, part)
        return _done(outputs)

    def all_gather_single(self, output: Tensor, mine: Tensor, opts: Any = None) -> Any:
        """Gives all what all have, as one tensor."""
        parts = self._meet_alike("all_gather", mine)
        _write(output, torch.cat([part.flatten() for part in parts]).view_as(output))
        return _done(output)

    def reduce_scatter_single(self, output: Tensor, mine: Tensor, opts: Any = None) -> Any:
        """Gives each its part of the sum."""
        parts = self._meet_alike("reduce_scatter", mine)
        own = [part.flatten().chunk(self._size)[self._rank] for part in parts]
        _write(output, _reduced(own, opts).view_as(output))
        return _done(output)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Gives all the sum, or another reduction."""
        for tensor in tensors:
            _write(tensor, _reduced(self._meet_alike("all_reduce", tensor), opts))
        return _done(tensors)

    def all_to_all_single(
        self, output: Tensor, mine: Tensor, received: Any = None, sent: Any = None, opts: Any = None
    ) -> Any:
        """Gives each its rows of what each has."""
        rows = list(sent or [mine.shape[0] // self._size] * self._size)
        parts = self._meet("all_to_all", _copy(mine).split(rows))
        _write(output, torch.cat([part[self._rank] for part in parts]))
        return _done(output)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        """Gives each what each has for it."""
        parts = self._meet("all_to_all", [_copy(one) for one in inputs])
        for output, part in zip(outputs, parts, strict=True):
            _write(output, part[self._rank])
        return _done(outputs)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        """Gives all what the root has."""
        parts = self._meet_alike("broadcast", tensors[0])
        _write(tensors[0], parts[opts.rootRank])
        return _done(tensors)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        """Gives each what the root has for it."""
        parts = self._meet("scatter", [_copy(one) for one in inputs[0]] if inputs else None)
        _write(outputs[0], parts[opts.rootRank][self._rank])
        return _done(outputs)

    def barrier(self, opts: Any = None) -> Any:
        """Waits for all."""
        self._meet("barrier", None)
        return _done(None)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        """As one of several."""
        for output, mine in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, mine)
        return _done(outputs)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        """As one of several."""
        for output, mine in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, mine, opts)
        return _done(outputs)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """The same of several."""
        return self.allreduce(tensors, opts)

    # As torch called them up to 2.12.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # Point to point: what is sent is there at once, what is received is waited for.

    def send(self, tensors: list[Tensor], to: int, tag: int) -> Any:
        """Leaves a tensor for the rank `to`."""
        self._mail(self._rank, to, tag).append(_copy(tensors[0]))
        self._meeting.issued[self._meeting.turns.rank].append("send")
        return _done(tensors)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> Any:
        """Takes what the rank `source` sends, once it is waited for."""
        self._meeting.issued[self._meeting.turns.rank].append("recv")
        return Receiving(
            self._meeting.turns, self._mail(source, self._rank, tag), tensors[0], source
        )

    def _mail(self, source: int, to: int, tag: int) -> list[Tensor]:
        ranks = tuple(dist.get_process_group_ranks(self))
        return self._meeting.sent.setdefault((ranks, source, to, tag), [])


class Receiving(dist.Work):
    """What is received once it is waited for."""

    def __init__(self, turns: Turns, mail: list[Tensor], into: Tensor, source: int) -> None:
        super().__init__()
        self._turns, self._mail, self._into, self._source = turns, mail, into, source

    def wait(self, timeout: Any = None) -> bool:
        """Until it is there. Raises RuntimeError where it has another shape."""
        self._turns.wait(f"recv from rank {self._source}", lambda: bool(self._mail))
        sent = self._mail.pop(0)
        if sent.shape != self._into.shape:
            shapes = f"{tuple(sent.shape)} for {tuple(self._into.shape)}"
            raise RuntimeError(f"rank {self._source} sent a tensor of shape {shapes}")
        _write(self._into, sent)
        return True

    def is_completed(self) -> bool:
        """Whether it is there."""
        return bool(self._mail)


def _copy(tensor: Tensor) -> Tensor:
    """As it is now: who has it goes on, and may write to it, before the others read."""
    return tensor.detach().clone()


@torch.no_grad()
def _write(output: Tensor, value: Tensor) -> None:
    output.detach().copy_(value)


def _reduced(parts: list[Tensor], opts: Any) -> Tensor:
    """The parts put together as `opts.reduceOp` says, in the order of the ranks; of half precision
    in float32, rounded once."""
    reduction = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    operation = str(getattr(reduction, "op", reduction)).rpartition(".")[2]
    if operation not in REDUCTIONS:
        raise NotImplementedError(f"simulated ranks do not reduce by {operation}")
    first = parts[0]
    half = first.is_floating_point() and first.element_size() < 4
    total = first.to(torch.float32 if half else first.dtype, copy=True)
    for part in parts[1:]:
        REDUCTIONS[operation](total, part, out=total)
    if operation == "AVG":
        total /= len(parts)
    return total.to(first.dtype)


def _done(result: Any) -> Any:
    future: Any = Future()
    future.set_result(result)
    return _create_work_from_future(future)


def install(turns: Turns) -> Meeting:
    """From here on each thread of `turns` has process groups of its own, and
    `dist.init_process_group` in it makes the group of all of them, whatever the back-end."""
    meeting, store, real = Meeting(turns), dist.HashStore(), dist.init_process_group

    def create(store: Any, rank: int, size: int, timeout: Any) -> SimulatedGroup:
        return SimulatedGroup(meeting, rank, size)

    def init_process_group(backend: str | None = None, **_: Any) -> None:
        real(NAME, rank=turns.rank, world_size=turns.size, store=store)

    multi_threaded_pg._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    dist.Backend.register_backend(NAME, create, devices=["cpu", "cuda"])
    dist.init_process_group = partial(init_process_group)
    return meeting
