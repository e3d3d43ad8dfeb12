"""What a campaign shows while it runs: a live view, plain lines, or JSON lines.

Everything shown is a pure function of a `Snapshot`; the controller makes snapshots and knows
nothing of how they look.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Literal, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from attnfuzz.fuzz.report.console import PlainConsole
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.escape import plain

LINE_EVERY_S = 10.0
BUCKETS_SHOWN = 25


@dataclass(frozen=True, kw_only=True)
class BucketView:
    """A bucket, or a finding on its way to one: `state` is what is being done with it, `fails` how
    often it failed of its confirmation runs ("5/5"), `seen` how many failures were taken for it."""

    id: str
    kind: str
    layer: str | None
    title: str
    state: str
    fails: str = "-"
    seen: int = 1
    known_issue: str | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A campaign at one moment. Programs are counted since the campaign began, resumed runs
    included; `rate` is programs per second of this run. `cpu` is the share of the machine's CPU
    time in use, 0 to 1. Of the findings that are `pending`, `pending_known` seem to be of causes
    that were known before. `defects` counts tasks that failed by our own fault, `stopped` programs
    that compiled for too long, `not_run` those whose preload file or own function failed first,
    `lost` tasks of this run that no worker survived, `spread` workers that are on several nodes
    each, `waits_s` for how long the finding has waited that has waited longest, `longest` the
    longest waits of this run so far, in seconds, by what they were for."""

    elapsed_s: float
    left_s: float
    executed: int
    passed: int
    rejected: int
    failed: int
    shards: int
    rate: float
    workers: int
    busy: int
    cpu: float
    doing: str
    spread: int = 0
    pending: int = 0
    pending_known: int = 0
    waits_s: float = 0.0
    longest: Mapping[str, float] = field(default_factory=dict)
    defects: int = 0
    stopped: int = 0
    not_run: int = 0
    lost: int = 0
    buckets: tuple[BucketView, ...] = ()


Watcher = Callable[[Snapshot], None]


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def line(snapshot: Snapshot) -> str:
    """The snapshot as one line of text."""
    s = snapshot
    parts = [
        f"{clock(s.elapsed_s)} ({clock(s.left_s)} left)",
        f"{counted(s.executed, 'program')} ({s.rate:.1f}/s): {s.passed:,} passed, "
        f"{s.rejected:,} rejected, {s.failed:,} failed"
        + (f", {s.stopped:,} stopped" if s.stopped else "")
        + (f", {s.not_run:,} not run" if s.not_run else ""),
        f"{counted(bucket_count(s), 'bucket')}, {_known(s)}{s.pending} pending{_pending(s)}",
        f"{_workers(s)}, CPU {s.cpu:.0%}",
        s.doing,
    ]
    if s.lost:
        parts.append(f"{counted(s.lost, 'task')} lost with their worker")
    if s.defects:
        parts.append(f"{counted(s.defects, 'defect')} of attnfuzz")
    return plain(" | ".join(parts))


def _workers(snapshot: Snapshot) -> str:
    """How many are busy, of how many; and how many of these are on several nodes."""
    spread = f" ({snapshot.spread} on several nodes)" if snapshot.spread else ""
    return f"{snapshot.busy}/{snapshot.workers} workers{spread}"


def _pending(snapshot: Snapshot) -> str:
    """How many of what is pending seem known, and for how long one has waited, where it is worth a
    word."""
    known = f"{snapshot.pending_known} of them known" if snapshot.pending_known else ""
    waits = f"one for {clock(snapshot.waits_s)}" if snapshot.waits_s >= 60 else ""
    return f" ({', '.join(filter(None, (known, waits)))})" if known or waits else ""


def bucket_count(snapshot: Snapshot) -> int:
    """How many buckets were found, those known before left out."""
    return sum(bucket.state in ("done", "variants") for bucket in snapshot.buckets)


def _known(snapshot: Snapshot) -> str:
    known = sum(bucket.state == "known" for bucket in snapshot.buckets)
    return f"{known} known, " if known else ""


def data(snapshot: Snapshot) -> str:
    """The snapshot as one line of JSON."""
    return json.dumps(asdict(snapshot))


def view(snapshot: Snapshot) -> RenderableType:
    """The snapshot as rich shows it: counts above, the newest buckets below."""
    s = snapshot
    counts = Table.grid(padding=(0, 3))
    counts.add_row(
        Text(clock(s.elapsed_s), style="bold"),
        f"{clock(s.left_s)} left",
        _workers(s),
        f"CPU {s.cpu:.0%}",
        s.doing,
        *([f"{s.pending} pending{_pending(s)}"] if s.pending else []),
    )
    counts.add_row(
        Text(f"{s.rate:.1f} programs/s", style="bold"),
        f"{s.executed:,} run",
        Text(f"{s.passed:,} passed", style="green"),
        Text(f"{s.rejected:,} rejected", style="yellow"),
        Text(f"{s.failed:,} failed", style="red"),
        *([f"{s.stopped:,} stopped"] if s.stopped else []),
        *([f"{s.not_run:,} not run"] if s.not_run else []),
        *([f"{counted(s.lost, 'task')} lost"] if s.lost else []),
    )
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("bucket", "kind", "layer", "fails", "seen", "state"):
        grid.add_column(column, no_wrap=True)
    grid.add_column("what", ratio=1, no_wrap=True, overflow="ellipsis")
    for bucket in s.buckets[-BUCKETS_SHOWN:]:
        grid.add_row(
            bucket.id,
            bucket.kind,
            bucket.layer or "-",
            bucket.fails,
            str(bucket.seen),
            bucket.state,
            Text(f"known: {bucket.known_issue} · {bucket.title}", style="dim")
            if bucket.known_issue
            else Text(bucket.title),
        )
    parts: list[RenderableType] = [counts, "", grid]
    hidden = len(s.buckets) - BUCKETS_SHOWN
    if hidden > 0:
        parts.append(Text(f"{hidden} earlier ones not shown", style="dim"))
    if s.defects:
        failed = f"{counted(s.defects, 'task')} failed by attnfuzz's own fault"
        parts.append(Text(failed, style="bold red"))
    return Group(*parts)


@contextmanager
def watching(
    mode: Literal["auto", "json"] = "auto", stream: TextIO | None = None
) -> Iterator[Watcher]:
    """Gives the function that shows snapshots: live on a terminal, else a line every 10 s, or with
    `json` a JSON line every 10 s. The last snapshot is always shown."""
    out = stream or sys.stdout
    if mode == "auto" and out.isatty():
        console = PlainConsole(file=out)
        with Live(console=console, auto_refresh=False) as live:
            yield lambda snapshot: live.update(view(snapshot), refresh=True)
        return
    lines = _Lines(out, data if mode == "json" else line)
    try:
        yield lines.show
    finally:
        lines.flush()


class _Lines:
    """Writes a snapshot whenever `LINE_EVERY_S` of the campaign has passed since the last."""

    def __init__(self, out: TextIO, text: Callable[[Snapshot], str]) -> None:
        self._out = out
        self._text = text
        self._next = 0.0
        self._held: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        self._held = snapshot
        if snapshot.elapsed_s >= self._next:
            self._next = snapshot.elapsed_s + LINE_EVERY_S
            self.flush()

    def flush(self) -> None:
        if self._held is not None:
            print(self._text(self._held), file=self._out, flush=True)
            self._held = None
