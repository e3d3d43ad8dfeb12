"""The pictures of a campaign as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from attnfuzz.corpus.store.progress import Progress
from attnfuzz.corpus.store.rows import Totals
from attnfuzz.fuzz.dashboard.plots import Line, Picture, bars, lines
from attnfuzz.fuzz.dashboard.queries import Night

GAP_S = 60.0
"""Seconds without a moment written down after which the campaign was not running."""


def of_night(night: Night) -> dict[str, Picture]:
    """Each picture by its heading."""
    found = {"Buckets found": _found(night)}
    if night.totals.by_status:
        found["Programs by outcome"] = _outcomes(night.totals)
    went = _went(night)
    if any(went.values()):
        words = ", ".join(f"{name} {value:,.0f} s" for name, value in went.items())
        found["What CPU and workers' time went into"] = bars(went, "seconds", words)
    moments = running(night.progress)
    if len(moments) > 1:
        found["Programs over time"] = _over_time(moments)
        found["Workers"] = _workers(moments)
    return found


def running(progress: Sequence[Progress]) -> list[tuple[float, Progress]]:
    """The moments with the seconds that the campaign had run until each: time in which it was not
    running is left out."""
    found, ran, before = list[tuple[float, Progress]](), 0.0, None
    for one in progress:
        if before is not None and 0 <= one.at - before.at <= GAP_S:
            ran += one.at - before.at
        found.append((ran, one))
        before = one
    return found


def _found(night: Night) -> Picture:
    end = night.totals.executed
    given = []
    for name, at in (("new", night.found_at), ("known before", night.known_at)):
        if at or name == "new":
            counts = [0, *range(1, len(at) + 1), len(at)]
            given.append(Line(name, [0, *at, end], counts, steps=True))
    words = f"{len(night.found_at)} new buckets"
    words += f" and {len(night.known_at)} known ones" if night.known_at else ""
    return lines(given, "programs run", "buckets", f"{words} within {end:,} programs.")


def _outcomes(totals: Totals) -> Picture:
    counts = {name.replace("_", " "): float(count) for name, count in totals.by_status.items()}
    words = ", ".join(f"{count:,.0f} {name}" for name, count in counts.items())
    return bars(counts, "programs", f"Programs by outcome: {words}.")


def _went(night: Night) -> dict[str, float]:
    """CPU seconds, and workers' busy seconds, each as far as it is recorded."""
    cpu = night.totals.cpu or {"new programs": night.totals.cpu_s + night.totals.harness_cpu_s}
    most_first = sorted(cpu.items(), key=lambda one: -one[1])
    went = {f"CPU: {name}": seconds for name, seconds in most_first}
    finding, investigating = busy(night.progress)
    if finding or investigating:
        went["busy: new programs"] = finding
        went["busy: what had failed"] = investigating
    return went


def busy(progress: Sequence[Progress]) -> tuple[float, float]:
    """Seconds that workers were busy with new programs and with what had failed, over all runs of
    a campaign: each run counts from zero."""
    finding = investigating = 0.0
    for one, after in zip_longest(progress, progress[1:]):
        if after is None or after.elapsed_s < one.elapsed_s:
            finding += one.finding_s
            investigating += one.investigating_s
    return finding, investigating


def _over_time(moments: Sequence[tuple[float, Progress]]) -> Picture:
    unit, at = _in_units(moments)
    last = moments[-1][1]
    alt = f"{last.executed:,} programs, {last.failed:,} failed, within {at[-1]:.3g} {unit}."
    given = [
        Line("run", at, [one.executed for _, one in moments]),
        Line("failed", at, [one.failed for _, one in moments]),
    ]
    return lines(given, unit, "programs", alt)


def _workers(moments: Sequence[tuple[float, Progress]]) -> Picture:
    unit, at = _in_units(moments)
    given = [
        Line("workers", at, [one.workers for _, one in moments], steps=True),
        Line("busy", at, [one.busy for _, one in moments], steps=True),
        Line("pending failures", at, [one.pending for _, one in moments], steps=True),
    ]
    last = moments[-1][1]
    alt = f"At the end {last.busy} of {last.workers} workers busy, {last.pending} failures pending."
    return lines(given, unit, "", alt)


def _in_units(moments: Sequence[tuple[float, Progress]]) -> tuple[str, list[float]]:
    """When the moments were, in hours, or in minutes where there are few."""
    unit, seconds = ("minutes", 60) if moments[-1][0] < 2 * 3600 else ("hours", 3600)
    return unit, [at / seconds for at, _ in moments]
