"""The shards of a campaign: which is next, what those that came back have taught, and the programs
of one that was run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from attnfuzz.actors.shard import MUTANTS, Shard, ShardReport
from attnfuzz.actors.targets.registry import target_for
from attnfuzz.actors.worker import drawn
from attnfuzz.corpus.store.kept import parents_of, shard_yields, target_of_shard
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig, config_from_data, profiles_on
from attnfuzz.fuzz.campaign.feedback import Feedback
from attnfuzz.fuzz.campaign.shard_numbers import ShardNumbers
from attnfuzz.fuzz.campaign.yields import Novelty, Yields
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.strategies.swarm import profile_for

UNSTEERED_OF = 10
"""Of how many shards one is drawn as if nothing were known: to see what hides behind what is, and
that it is still there."""


class Shards:
    """See the module's docstring. Those that `store` has are done; with `most` there are no more
    than that. The programs of a shard depend on its number alone, or for a shard of mutants on what
    its row says."""

    def __init__(
        self, config: CampaignConfig, store: Store, buckets: BucketIndex, most: int | None
    ) -> None:
        self._config, self._buckets = config, buckets
        self._profiles = {name: profiles_on(name, config) for name in config.targets}
        profiles = self._profiles if config.yields else None
        self._numbers = ShardNumbers(
            config.seed, config.targets, store.shard_indices(), most, profiles
        )
        totals = store.totals()
        self._novelty = Novelty(totals.features, totals.by_key)
        self._yields = {name: Yields(weights) for name, weights in self._profiles.items()}
        if config.yields:
            for index, cpu_s, novel in store.read(shard_yields):
                self._learn(index, cpu_s, novel)
        self._feedback = Feedback(config.seed, store) if config.feedback else None

    @property
    def left(self) -> bool:
        """Whether there may be one, whoever takes it."""
        return self._numbers.left

    def find(self, takes: Callable[[str], bool]) -> int | None:
        """The number of the drawn shard that is next, for whose target a worker is free."""
        return self._numbers.next(takes, self._turn)

    def take(self, index: int) -> Shard:
        """The shard that is run: that of the number, or in its turn one of mutants of what was kept
        on the same target."""
        target = target_for(self._config.seed, index, self._config.targets)
        number = self._feedback.number(target) if self._feedback is not None else None
        if self._feedback is not None and number is not None:
            return replace(
                self._shard(number, target), parents=self._feedback.parents(target, number)
            )
        self._numbers.take(index)
        if self._config.yields:
            self._yields[target].start(self._profile(target, index))
        return self._shard(index, target)

    def receive(self, report: ShardReport) -> ShardReport:
        """Learns from a report, and gives it as it is to be recorded."""
        novel = self._novelty.of(report)
        cpu_s = report.cpu_s + report.harness_cpu_s
        if self._config.yields and report.executed:
            self._learn(report.index, cpu_s, novel)
        kept = self._feedback.receive(report) if self._feedback is not None else ()
        return replace(report, novel=novel, kept=kept)

    def _learn(self, index: int, cpu_s: float, novel: int) -> None:
        target = target_for(self._config.seed, index, self._config.targets)
        if index < MUTANTS:
            self._yields[target].learn(self._profile(target, index), cpu_s, novel)

    def _turn(self, target: str, profile: str) -> float:
        return self._yields[target].turn(profile)

    def _profile(self, target: str, index: int) -> str:
        return profile_for(self._config.seed, index, self._profiles[target])

    def _shard(self, index: int, target: str) -> Shard:
        # What is known from the beginning, and no more: the programs must not depend on what was
        # found when.
        known = tuple(self._buckets.known.steered_clear_of(target)) if self._config.steering else ()
        return Shard(
            campaign_seed=self._config.seed,
            index=index,
            size=self._config.shard_size,
            target=target,
            profiles=tuple(sorted(self._profiles[target].items())),
            functions=self._config.functions,
            known_keys=self._buckets.settled_keys(),
            known=known,
            clear_of=() if index % UNSTEERED_OF == UNSTEERED_OF - 1 else known,
            budgets=self._config.budgets,
            feedback=self._config.feedback,
        )


def drawn_again(store: Store, index: int) -> list[Program]:
    """The programs of a shard that was recorded, as they were before they were steered clear of
    what was known. Raises StoreError, or UserError where there is no such shard."""
    there = store.campaign()
    if there is None or index not in store.shard_indices():
        raise UserError(mismatch(f"{store.path}: shard", "one that was run", str(index)))
    keys = ("seed", "shard_size", "profiles", "functions", "targets", "preload")
    config = config_from_data({key: there.config[key] for key in keys}, str(store.path))
    target = store.read(partial(target_of_shard, index=index))
    if target not in config.targets:
        where = f"{store.path}: shards: row {index}: target"
        raise UserError(mismatch(where, f"one of {', '.join(config.targets)}", target))
    shard = Shard(
        campaign_seed=config.seed,
        index=index,
        size=config.shard_size,
        target=target,
        profiles=tuple(sorted(profiles_on(target, config).items())),
        functions=config.functions,
        parents=tuple(store.read(partial(parents_of, index=index))),
    )
    return drawn(shard)
