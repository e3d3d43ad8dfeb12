"""A campaign's numbers as metrics of Ray, which exports them to Prometheus with its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ray.util.metrics import Gauge

from attnfuzz.fuzz.report.live import Snapshot, Watcher

EVERY_S = 5.0
STATES = ("busy", "idle", "starting", "waiting")


class Metrics:
    """Shows each snapshot to Ray. `states` gives workers by state, `cpu` CPU seconds by what they
    were spent on. Prometheus has the names with "ray_" before them."""

    def __init__(
        self, states: Callable[[], Mapping[str, int]], cpu: Callable[[], Mapping[str, float]]
    ) -> None:
        self._states = states
        self._cpu = cpu
        self._next = float("-inf")
        self._programs = Gauge(
            "attnfuzz_programs", "Programs run since the campaign began", ("outcome",)
        )
        self._buckets = Gauge("attnfuzz_buckets", "Distinct causes found")
        self._pending = Gauge("attnfuzz_findings_pending", "Findings with something left to do")
        self._age = Gauge(
            "attnfuzz_finding_wait_seconds", "How long the oldest finding has waited for a worker"
        )
        self._workers = Gauge("attnfuzz_workers", "Workers by what they are at", ("state",))
        self._cpu_seconds = Gauge(
            "attnfuzz_cpu_seconds", "CPU seconds of programs by purpose", ("purpose",)
        )

    def show(self, snapshot: Snapshot) -> None:
        """Takes the numbers of a moment, unless the last were taken a moment ago."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        for outcome in ("passed", "rejected", "failed", "stopped", "not_run"):
            self._programs.set(getattr(snapshot, outcome), {"outcome": outcome})
        self._buckets.set(sum(one.state in ("done", "known") for one in snapshot.buckets))
        self._pending.set(snapshot.pending)
        self._age.set(snapshot.waits_s)
        states = self._states()
        for state in STATES:
            self._workers.set(states.get(state, 0), {"state": state})
        for purpose, seconds in self._cpu().items():
            self._cpu_seconds.set(seconds, {"purpose": purpose})

    def beside(self, watcher: Watcher) -> Watcher:
        """Shows each snapshot to `watcher` too."""

        def both(snapshot: Snapshot) -> None:
            self.show(snapshot)
            watcher(snapshot)

        return both
