"""A whole campaign on a pool of deterministic answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.controller import Campaign
from tests.support.fake_pool import FakePool

CONFIG = CampaignConfig(seed=7, minutes=60, shard_size=6, variants=False)


def run(
    directory: Path, pool: FakePool | None = None, shards: int = 4, **changes: Any
) -> list[Bucket]:
    """Runs it in `directory`, with `CONFIG` changed, and gives its buckets."""
    directory.mkdir(exist_ok=True)
    config, ticks = CONFIG.model_copy(update=changes), iter(range(10**6))
    answers = pool or FakePool()
    with Store(directory) as store:
        store.begin(config.seed, config.model_dump(mode="json"), answers.environment())
        campaign = Campaign(
            config, directory, answers, store, scratch=directory, max_shards=shards,
            clock=lambda: next(ticks) / 100,
        )  # fmt: skip
        assert campaign.run().ended == "nothing left"
        return store.buckets()
