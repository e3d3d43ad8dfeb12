"""What a rank does together with others: its collectives, as torch's flight recorder has them, and
the messages that it sends and receives, which that recorder leaves out on a CPU.

The record is written when the rank ends, and whenever somebody opens its `ask-N`: a rank that waits
in a collective does so without Python's lock. What it says is compared in `sandbox.collectives`.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from attnfuzz.actors.sandbox import collectives

ENTRIES = "20000"
"""Collectives that the recorder keeps: the last ones."""

DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")
"""What gives the recorder's entries: of gloo, and of NCCL where torch is built with it."""

DTYPES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
}
"""torch's names of what the recorder calls otherwise."""

OURS = str(Path(__file__).resolve().parents[1])

_MESSAGES = ("send", "recv", "recv_anysource")


class Recorder:
    """The record of rank `rank`, from now on. Files are left in the current folder."""

    def __init__(self, rank: int) -> None:
        os.environ["TORCH_FR_BUFFER_SIZE"] = ENTRIES
        self._rank = rank
        self._messages: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Notes messages, and answers whoever asks, until this process ends."""
        from torch._C import _distributed_c10d as c10d

        for name in _MESSAGES:
            self._note(c10d.ProcessGroup, name)
        os.mkfifo(collectives.ask_file(Path(), self._rank))
        threading.Thread(target=self._answer, name="flight record", daemon=True).start()

    def write(self) -> None:
        """Writes what has happened so far, whole or not at all."""
        with self._lock:
            file = collectives.record_file(Path(), self._rank)
            unfinished = file.with_suffix(".new")
            unfinished.write_text(json.dumps(self._record()))
            unfinished.rename(file)

    def _answer(self) -> None:
        asked = collectives.ask_file(Path(), self._rank)
        with contextlib.suppress(OSError):  # the program removed it, or filled the disk
            while True:
                with open(asked, "rb") as asking:  # waits until somebody opens its other end
                    asking.read()
                self.write()

    def _note(self, group: type, name: str) -> None:
        original: Callable[..., Any] = getattr(group, name)
        anyone = name == "recv_anysource"

        @wraps(original)
        def noting(process_group: Any, tensors: Sequence[Any], *rest: Any) -> Any:
            peer, tag = (None, rest[0]) if anyone else (rest[0], rest[1])
            self._messages.append({
                "group": str(process_group.group_name),
                "sends": name == "send",
                "peer": peer,
                "tag": tag,
                "dtype": _dtypes([str(t.dtype) for t in tensors]),
                "numel": sum(t.numel() for t in tensors),
                "at": _calling_frame(),
                "since_ns": time.time_ns(),
            })  # fmt: skip
            return original(process_group, tensors, *rest)

        setattr(group, name, noting)

    def _record(self) -> dict[str, Any]:
        entries, asked_for = _entries()
        return {
            "groups": _groups(),
            "asked for": asked_for,
            "collectives": [_collective(entry) for entry in entries if not entry["is_p2p"]],
            "messages": list(self._messages),
        }


def _entries() -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The recorder's entries in their order, and how many operations, messages too, each group was
    asked for."""
    from torch._C import _distributed_c10d as c10d

    found: list[dict[str, Any]] = []
    asked_for = {}
    for name in DUMPS:
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        trace = pickle.loads(dump(True, True, False))  # of this process's own making
        entries = trace.get("entries", [])
        names = {str(entry["pg_id"]): entry["process_group"][0] for entry in entries}
        for number, status in trace.get("pg_status", {}).items():
            last = int(status.get("last_enqueued_collective", -1))
            if last >= 0 and str(number) in names:
                asked_for[names[str(number)]] = last
        found += entries
    return found, asked_for


def _groups() -> dict[str, list[int]]:
    """The ranks of each process group, by its name, in the group's own order."""
    import torch.distributed.distributed_c10d as c10d

    world = c10d._world
    return {
        str(world.pg_names[group]): [number for number, _ in sorted(ranks.items(), key=_place)]
        for group, ranks in list(world.pg_group_ranks.items())
        if group in world.pg_names
    }


def _place(rank: tuple[int, int]) -> int:
    return rank[1]


def _collective(entry: dict[str, Any]) -> dict[str, Any]:
    op = str(entry["profiling_name"]).rpartition(":")[2]
    sizes = entry["input_sizes"] or entry["output_sizes"]
    dtypes = [*entry["input_dtypes"], *entry["output_dtypes"]]
    return {
        "group": str(entry["process_group"][0]),
        "number": int(entry["collective_seq_id"]),
        "op": op,
        "dtype": _dtypes(dtypes),
        "numel": sum(_numel(size) for size in sizes) if op in collectives.SAME_SIZE else None,
        "done": bool(entry["retired"]) or entry["state"] == "completed",
        "at": _at([(f["filename"], f["line"], f["name"]) for f in entry.get("frames", ())]),
        "since_ns": int(entry["time_created_ns"]),
    }


def _dtypes(names: Sequence[str]) -> str:
    short = (name.removeprefix("torch.").lower() for name in names)
    return " and ".join(dict.fromkeys(DTYPES.get(name, name) for name in short))


def _numel(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _calling_frame() -> str:
    """The line that calls what is noted."""
    frame = sys._getframe(2)
    frames = []
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return _at(frames)


def _at(frames: Sequence[tuple[str, int, str]]) -> str:
    """The innermost line outside torch: "program.py:20: dist.barrier()"."""
    outside = (f for f in frames if "/torch/" not in f[0] and not f[0].startswith(OURS))
    file, line, name = next(outside, frames[0] if frames else ("", 0, ""))
    if not file:
        return ""
    code = linecache.getline(file, line).strip()
    return f"{Path(file).name}:{line}: {code or name}"
