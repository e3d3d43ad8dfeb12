"""A program whose ranks are threads: each has a module of its own, and all run together."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from attnfuzz.actors.child.outcomes import Failed, diff, failure
from attnfuzz.actors.child.program_module import MODULE, Outputs, ProgramModule
from attnfuzz.actors.child.simulation.group import Meeting, install
from attnfuzz.actors.child.simulation.turns import Stuck, Turns

_made: dict[int, tuple[Turns, Meeting]] = {}


def simulated_ranks(size: int) -> tuple[Turns, Meeting]:
    """The ranks of this process, which live as long as it. Together they may compile a function
    once each, as their processes would: here they are one, in which dynamo gives up after eight
    times (its default `recompile_limit`)."""
    if size not in _made:
        config = torch._dynamo.config
        config.recompile_limit = max(config.recompile_limit, size)
        turns = Turns(size)
        _made[size] = turns, install(turns)
    return _made[size]


class SimulatedModule(ProgramModule):
    """`ProgramModule` of `size` simulated ranks. Its functions are those of the rank that calls
    them; `run` runs them on every rank, and gives what the first one got, or one that got something
    else. Raises what a rank raises, and `Failed` where the ranks wait for one another."""

    def __init__(self, source: Path, size: int) -> None:
        self.disagreement: dict[str, Any] | None = None
        """The failure of ranks that in the last run have not got or done the same. It is told once
        the results are judged: where they are wrong, that says more."""
        self._turns, self._meeting = simulated_ranks(size)
        self._meeting.forget()
        self._modules: list[ProgramModule] = self._turns.each(
            lambda rank: ProgramModule(source, MODULE if not rank else f"{MODULE}_{rank}")
        )
        first = self._modules[0]
        self.__dict__.update(first.__dict__)
        self.attention = self._own("attention")
        self.compiled = self._own("compiled") if first.compiled is not None else None
        self.run = functools.partial(self._everywhere, "run")
        self._run_attention = functools.partial(self._everywhere, "_run_attention")
        self._run_compiled = functools.partial(self._everywhere, "_run_compiled")

    def _own(self, name: str) -> Callable[..., Any]:
        """The function of that name of the rank that calls it."""
        first = getattr(self._modules[0], name)

        def own(*args: Any) -> Any:
            return getattr(self._modules[self._turns.rank], name)(*args)

        own.__wrapped__ = first  # type: ignore[attr-defined]
        return own

    def _everywhere(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> Outputs:
        """What `run`, or another of that sort, gives for `function`: the reference, which knows
        nothing of ranks, is run by itself."""
        if function is self.reference:
            run: Callable[..., Outputs] = getattr(self._modules[0], name)
            return run(function, args)
        self._meeting.forget()
        given = [args, *(copy.deepcopy(args) for _ in self._modules[1:])]
        try:
            outputs: list[Outputs] = self._turns.each(
                lambda rank: _by_itself(getattr(self._modules[rank], name), function, given[rank])
            )
        except Stuck as stuck:
            eager = name == "_run_attention"
            raise Failed(hang(stuck, self._meeting, "eager" if eager else "forward")) from None
        odd = next((rank for rank, found in _differing(outputs) if found), 0)
        self.disagreement = self._parted() or (_replicas(outputs) if odd else None)
        return outputs[odd]

    def _parted(self) -> dict[str, Any] | None:
        """The failure of ranks that have not issued the same collectives in one order."""
        first, *others = self._meeting.issued.values()
        for rank, issued in enumerate(others, start=1):
            if _comparable(issued) != _comparable(first):
                at = next(
                    (
                        i
                        for i, pair in enumerate(zip(first, issued, strict=False))
                        if len(set(pair)) > 1
                    ),
                    min(len(first), len(issued)),
                )
                mine, theirs = ([*one, "none"][min(at, len(one))] for one in (issued, first))
                return _sequence(at + 1, rank, theirs, mine)
        return None


def _by_itself(run: Callable[..., Outputs], *args: Any) -> Outputs:
    """What `run` gives, with all of it done by this thread: autograd has a thread for each card,
    which is no rank's."""
    with torch.autograd.set_multithreading_enabled(False):
        return run(*args)


def _sequence(number: int, rank: int, theirs: str, mine: str) -> dict[str, Any]:
    """As `sandbox.together` says it of processes: the place is evidence, and no part of a key."""
    return failure(
        "metadata_mismatch",
        "check",
        oracle="collectives",
        diffs=[diff("collectives", "sequence", theirs, mine, call=0)],
        evidence={"collectives": f"collective {number}: rank {rank}: {mine}; rank 0: {theirs}"},
    )


def _comparable(issued: list[str]) -> list[str]:
    """Without the ranks of a group, which differ along a further dimension of a mesh."""
    return [one.partition(" over ")[0] for one in issued]


def _differing(outputs: list[Outputs]) -> Iterator[tuple[int, list[str]]]:
    """Each rank but the first, with the results in which it differs from that."""
    for rank, other in enumerate(outputs[1:], start=1):
        yield (
            rank,
            [
                name
                for name, value in outputs[0].items()
                if isinstance(value, torch.Tensor) and not _same(value, other[name])
            ],
        )


def _replicas(outputs: list[Outputs]) -> dict[str, Any]:
    """The failure of ranks of which one has another result than the first: all of them gathered the
    same parts."""
    rank, names = next((rank, names) for rank, names in _differing(outputs) if names)
    found = [
        diff(name, "replicas", "the same on all ranks", f"not on rank {rank}", call=0)
        for name in names
    ]
    return failure("metadata_mismatch", "check", oracle="replicas", diffs=found)


def _same(value: torch.Tensor, other: Any) -> bool:
    return isinstance(other, torch.Tensor) and torch.equal(
        value.detach().nan_to_num(), other.detach().nan_to_num()
    )


def hang(stuck: Stuck, meeting: Meeting, phase: str) -> dict[str, Any]:
    """The failure of ranks that wait for one another: each says in which collective, and how many
    it has issued; then those that are elsewhere than most."""
    lines, together = [], dict[str, list[str]]()
    for rank, issued in meeting.issued.items():
        waits = stuck.waits.get(rank, "")
        where = f"waits in {waits}" if waits else "has ended"
        lines.append(f"rank {rank}: {where}; {len(issued)} collectives issued")
        together.setdefault(waits.partition(" from rank ")[0], []).append(f"rank {rank}")
    most, *fewer = sorted(together.values(), key=len, reverse=True)
    others = [rank for ranks in fewer for rank in ranks]
    if others and len(most) > len(others):
        lines.append(f"went another way: {', '.join(others)}")
    raised = {
        "type": "Hang", "message": "the ranks wait for one another", "chain": [], "frames": [],
    }  # fmt: skip
    return failure(
        "hang",
        phase,
        layer="eager" if phase == "eager" else None,
        oracle="watchdog",
        raised=raised,
        evidence={"ranks": "\n".join(lines)},
    )
