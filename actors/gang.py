"""Where the ranks of a program that hangs are: in which collective each waits, and which of them
went another way than the others."""

from __future__ import annotations

import linecache
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from actors import confine, procs

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
SPIED_ON = 8
"""Ranks whose native stacks are taken: some seconds each."""

OURS = str(Path(__file__).resolve().parent)

Place = tuple[tuple[str, int, str], ...]
"""The frames of a rank's main thread, innermost first: file, line, function."""


def of_ranks(directory: Path, spy: Callable[[int], str] | None) -> dict[str, str]:
    """Evidence about the ranks that `actors.child.gang` has left files of in `directory`; nothing
    where there are none. `spy(pid)` gives a process's stacks, without it there are none."""
    texts = {_rank(file): file.read_text() for file in directory.glob("rank-*.pid")}
    pids = {rank: int(text) for rank, text in texts.items() if text.isdigit()}
    if not pids:
        return {}
    for rank in sorted(pids.keys() - {0}):
        procs.send(pids[rank], confine.STACKS_SIGNAL)
    time.sleep(0.3)  # each writes its own
    places = {rank: _place(directory, rank) for rank in sorted(pids)}
    evidence = {"ranks": told(places)}
    if spy is not None:
        spied = [rank for rank in sorted(pids) if 0 < rank < SPIED_ON]
        evidence |= {f"stacks of rank {rank}": spy(pids[rank]) for rank in spied}
    return evidence


def _rank(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def _place(directory: Path, rank: int) -> Place:
    """Where the rank's main thread is, as faulthandler has written; nothing if it has ended."""
    if (directory / f"rank-{rank}.json").exists():
        return ()
    name = confine.FAULTS if rank == 0 else f"faults-{rank}.txt"
    try:
        text = (directory / name).read_text(errors="replace")
    except OSError:
        return ()
    current = text.rpartition("Current thread ")[2]
    frames = ((file, int(line), function) for file, line, function in _FRAME.findall(current))
    return tuple(frame for frame in frames if not frame[0].startswith(OURS))


def told(places: dict[int, Place]) -> str:
    """One line a rank, then those that are elsewhere than most."""
    lines = [f"rank {rank}: {_at(place)}" for rank, place in places.items()]
    count = Counter(places.values())
    usual, most = count.most_common(1)[0]
    others = [rank for rank, place in places.items() if place != usual]
    if others and most > len(others):
        lines.append(f"went another way: {', '.join(f'rank {rank}' for rank in others)}")
    elif others:
        lines.append(f"went {len(count)} ways")
    return "\n".join(lines)


def _at(place: Place) -> str:
    """The innermost function, that calls an operator if one does, and the first line outside torch:
    the collective, and who asked for it."""
    if not place:
        return "has ended"
    inner = next((frame for frame in place if not frame[0].endswith("torch/_ops.py")), place[0])
    outer = next((frame for frame in place if "/torch/" not in frame[0]), place[-1])
    code = linecache.getline(outer[0], outer[1]).strip()
    return f"{inner[2]} ({_short(inner[0])}:{inner[1]}), from {_short(outer[0])}:{outer[1]}: {code}"


def _short(file: str) -> str:
    return file.rpartition("-packages/")[2] if "-packages/" in file else Path(file).name
