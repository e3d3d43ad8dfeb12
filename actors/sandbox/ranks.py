"""Where the ranks of a program that hangs are: in which collective each waits, and which of them
went another way than the others."""

from __future__ import annotations

import linecache
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from attnfuzz.actors.sandbox import collectives, confine, procs
from attnfuzz.actors.sandbox.collectives import Record
from attnfuzz.actors.sandbox.parts import Shown
from attnfuzz.corpus.frames import GENERATED, GENERATED_FILE
from attnfuzz.generators.model.outcome import PARTED

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_WAITS = re.compile(r"torch\.ops\._c10d_functional\.wait_tensor\.default\((\w+)\)")
_COLLECTIVE = re.compile(r"(?:\w+ = )?torch\.ops\._c10d_functional\.(?!wait_tensor)")
SPIED_ON = 8
"""Ranks whose native stacks are taken: some seconds each."""

OURS = str(Path(__file__).resolve().parents[1])

Place = tuple[tuple[str, int, str], ...]
"""The frames of a rank's main thread, innermost first: file, line, function."""


def speaker(directory: Path) -> tuple[int, str] | None:
    """The pid of the first rank that still runs, and the name of the file its stacks are written
    to; None where the program in `directory` has no ranks, or none that runs."""
    there = running(directory)
    rank = min(there, default=None)
    return None if rank is None else (there[rank], faults_name(rank))


def faults_name(rank: int) -> str:
    """Where faulthandler writes what it has to say of a rank."""
    return f"faults-{rank}.txt"


def running(directory: Path) -> dict[int, int]:
    """The pids of those ranks of the program in `directory` that still run."""
    pids = _pids(directory)
    return {rank: pid for rank, pid in pids.items() if _runs(directory, rank, pid)}


def show(directory: Path, evidence: dict[str, str], spy: Callable[[int], str] | None) -> Shown:
    """Where the ranks are that `actors.child.gang` has left files of in `directory`, with
    `evidence` about the first that runs. `spy(pid)` gives a process's stacks; without it there are
    none."""
    pids, there = _pids(directory), running(directory)
    if not pids:
        return Shown(evidence=evidence)
    for rank in [*there][1:]:  # the first has been asked, see `speaker`
        procs.send(pids[rank], confine.STACKS_SIGNAL)
    time.sleep(0.3)  # each writes its own
    places = {rank: _place(directory, rank) if rank in there else () for rank in pids}
    collectives.ask(directory, [*there])
    if spy is not None:
        more = {f"stacks of rank {rank}": spy(pids[rank]) for rank in [*there][1:SPIED_ON]}
        evidence = evidence | more
    return _standing(places, collectives.read(directory, pids), evidence)


def _standing(
    places: Mapping[int, Place],
    records: Mapping[int, Record],
    evidence: Mapping[str, str] | None = None,
) -> Shown:
    return Shown(
        evidence=evidence or {},
        said={rank: _at(place) for rank, place in places.items()},
        place={rank: _comparable(place) for rank, place in places.items()},
        records=records,
    )


def evidence_of(here: Shown, elsewhere: Mapping[str, Shown]) -> dict[str, str]:
    """Evidence of a hang: what is shown of this node, and of the others by their names; of several
    ranks also `ranks`, a line each."""
    texts = dict(here.evidence)
    for name, shown in elsewhere.items():
        texts |= {f"{what} on {name}": text for what, text in shown.evidence.items()}
    parts = (here, *elsewhere.values())
    said = {rank: text for one in parts for rank, text in one.said.items()}
    if said:
        places = {rank: place for one in parts for rank, place in one.place.items()}
        records = {rank: record for one in parts for rank, record in one.records.items()}
        texts["ranks"] = _summed(said, places, records)
    return texts


def _pids(directory: Path) -> dict[int, int]:
    texts = {_rank(file): file.read_text() for file in directory.glob("rank-*.pid")}
    return {rank: int(texts[rank]) for rank in sorted(texts) if texts[rank].isdigit()}


def _rank(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def _runs(directory: Path, rank: int, pid: int) -> bool:
    process = procs.read(pid)
    ended = process is None or process.state in "ZX"
    return not ended and not (directory / f"rank-{rank}.json").exists()


def _place(directory: Path, rank: int) -> Place:
    """Where the rank's main thread is, as faulthandler has written."""
    try:
        text = (directory / faults_name(rank)).read_text(errors="replace")
    except OSError:
        return ()
    current = text.rpartition("Current thread ")[2]
    frames = ((file, int(line), function) for file, line, function in _FRAME.findall(current))
    return tuple(frame for frame in frames if not frame[0].startswith(OURS))


def summary(places: dict[int, Place], records: Mapping[int, Record] | None = None) -> str:
    """One line a rank: where it is, and in which collective it waits. Then where ranks parted, if
    it is known; and those that are elsewhere than most, or which are together."""
    return evidence_of(_standing(places, records or {}), {})["ranks"]


def _summed(
    said: Mapping[int, str], places: Mapping[int, Place], records: Mapping[int, Record]
) -> str:
    waits = collectives.waiting(records)
    silent = "gives no record" if waits else ""  # it is stopped, or holds Python's lock
    lines = [
        "; ".join(filter(None, (f"rank {rank}: {text}", waits.get(rank, silent))))
        for rank, text in sorted(said.items())
    ]
    parting = collectives.divergence(records, ended=False)
    if parting is not None:
        lines.append(f"{PARTED}{parting}")
    together: dict[Place, list[str]] = {}
    for rank, place in sorted(places.items()):
        together.setdefault(place, []).append(f"rank {rank}")
    most, *fewer = sorted(together.values(), key=len, reverse=True)
    others = [rank for ranks in fewer for rank in ranks]
    if others and len(most) > len(others):
        lines.append(f"went another way: {', '.join(others)}")
    elif others:
        ways = "; ".join(", ".join(ranks) for ranks in together.values())
        lines.append(f"went {len(together)} ways: {ways}")
    return "\n".join(lines)


def _comparable(place: Place) -> Place:
    """Inductor writes a file for each rank, named after what is in it, such as the rank; and each
    node has its own folders."""
    return tuple((_common(file), line, function) for file, line, function in place)


def _common(file: str) -> str:
    return GENERATED if GENERATED_FILE.fullmatch(Path(file).name) else _short(file)


def _at(place: Place) -> str:
    """The innermost function, that calls an operator if one does, and the first line outside torch:
    the collective, and what called it."""
    if not place:
        return "has ended"
    inner = next((frame for frame in place if not frame[0].endswith("torch/_ops.py")), place[0])
    outer = next((frame for frame in place if "/torch/" not in frame[0]), place[-1])
    code = _calling_line(linecache.getlines(outer[0])[: outer[1]])
    return f"{inner[2]} ({_short(inner[0])}:{inner[1]}), from {_short(outer[0])}:{outer[1]}: {code}"


def _calling_line(lines: list[str]) -> str:
    """The last of `lines`; where it waits for a collective that generated code has begun, that."""
    *earlier, last = (line.strip() for line in lines or [""])
    if waits := _WAITS.match(last):
        result = re.compile(rf"\b{waits[1]}\b")
        begun = (one for one in reversed(earlier) if _COLLECTIVE.match(one) and result.search(one))
        return next(begun, last)
    return last


def _short(file: str) -> str:
    return file.rpartition("-packages/")[2] if "-packages/" in file else Path(file).name
