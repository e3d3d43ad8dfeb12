"""Every target that programs can run on, by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from attnfuzz.actors.targets.folders import TARGET_FOLDERS
from attnfuzz.actors.targets.target import Target
from attnfuzz.generators.strategies.swarm import by_weight

TARGETS: dict[str, Target] = {
    target.name: target
    for folder in TARGET_FOLDERS
    for target in importlib.import_module(f"attnfuzz.actors.targets.{folder}.target").TARGETS
}


def target_for(seed: int, index: int, weights: Mapping[str, float]) -> str:
    """The target of shard `index` of a campaign, with the given relative weights."""
    return by_weight(seed, "target", index, weights)
