"""What profiles yield, and the CPU time that each gets for it.

Half of the time for new programs goes to profiles as their weights say, which is the floor of each,
and half by what their last shards have shown for it: behaviours of the compiler and keys of
failures that no shard had shown before, per CPU second. Whose turn it is follows from what each was
given (stride scheduling: Waldspurger and Weihl, 1995). Only the order of shards depends on it:
which programs are in a shard does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from attnfuzz.actors.shard import ShardReport

LAST = 20
"""Shards of a profile whose yield counts."""

A_KEY = 5
"""How many behaviours a new key is worth."""

UNKNOWN_S = 20.0
"""CPU seconds that a shard is taken to cost before any has come back."""


class Novelty:
    """What shards have shown so far: behaviours, and keys of failures, by their names."""

    def __init__(self, behaviours: Collection[str], keys: Collection[str]) -> None:
        self._behaviours, self._keys = set(behaviours), set(keys)

    def of(self, report: ShardReport) -> int:
        """What is new in the report, which is known from then on."""
        behaviours = report.features.keys() - self._behaviours
        keys = report.by_key.keys() - self._keys
        self._behaviours |= behaviours
        self._keys |= keys
        return len(behaviours) + A_KEY * len(keys)


class Yields:
    """See the module's docstring. `weights` are those of the profiles."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = {name: weight for name, weight in weights.items() if weight > 0}
        self._last = {name: deque[tuple[float, int]](maxlen=LAST) for name in self._weights}
        self._passed = dict.fromkeys(self._weights, 0.0)

    def learn(self, profile: str, cpu_s: float, novel: int) -> None:
        """A shard of the profile took `cpu_s` and showed so much that was new."""
        self._last[profile].append((max(cpu_s, 1e-3), novel))

    def start(self, profile: str) -> None:
        """A shard of the profile is handed out: it has had its turn."""
        share = self.shares()[profile]
        self._passed[profile] += self._cost(profile) / share

    def turn(self, profile: str) -> float:
        """Of the profiles at hand, that with the least is next."""
        return self._passed[profile]

    def shares(self) -> dict[str, float]:
        """The share of the CPU time that each profile is to have."""
        costs = {name: weight * self._cost(name) for name, weight in self._weights.items()}
        rates = {name: self._rate(name) for name in self._weights}
        whole_cost, whole_rate = sum(costs.values()), sum(rates.values())
        return {
            name: 0.5 * costs[name] / whole_cost + 0.5 * rates[name] / whole_rate
            for name in self._weights
        }

    def _cost(self, profile: str) -> float:
        """CPU seconds of one of its shards."""
        last = self._last[profile]
        return sum(cpu_s for cpu_s, _ in last) / len(last) if last else UNKNOWN_S

    def _rate(self, profile: str) -> float:
        """What it shows that is new, per CPU second. One that has shown nothing is not known to
        have nothing: it counts as half a behaviour."""
        last = self._last[profile]
        spent = sum(cpu_s for cpu_s, _ in last) + UNKNOWN_S
        return (sum(novel for _, novel in last) + 0.5) / spent
