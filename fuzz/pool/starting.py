"""Starting the worker of a slot: one actor, or one in the first bundle of a placement group, which
starts others in the further ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from attnfuzz.actors.hosts import Placement
from attnfuzz.actors.node import Away
from attnfuzz.actors.remote import Board
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool.cluster import Cluster
from attnfuzz.fuzz.pool.slots import Slot


def start(kind: Any, slot: Slot, config: WorkerConfig, cluster: Cluster | None, board: Any) -> Any:
    """Starts the slot's worker, of the actor class `kind`, and gives it; `config` is that of all
    workers."""
    group, away = slot.group, None
    options = group.options()
    config = replace(config, own_cpus=group.own_cpus)
    if cluster is not None:
        away = Away(
            toolchain=group.toolchain or cluster.toolchain,
            preload=cluster.preload,
            code=cluster.code,
        )
        config = cluster.config_for(config, group)
    placement = None
    if group.nodes > 1:
        bundles = [group.needs] * group.nodes
        slot.placement = placement_group(bundles, strategy="STRICT_SPREAD")
        placement = Placement(slot.placement, group.nodes, options)
        options = placement.options_of(0)
    elif slot.node is not None:
        affinity = NodeAffinitySchedulingStrategy(slot.node, soft=False)
        options = options | {"scheduling_strategy": affinity}
    # We replace dead workers ourselves, with the task they died of counted.
    made = kind.options(max_restarts=0, **options)
    slot.actor = made.remote(config, away, board, slot.name, placement)
    return slot.actor


def end(slot: Slot) -> None:
    """Ends the slot's worker, and what it has started on other nodes."""
    if slot.actor is not None:
        ray.kill(slot.actor)
    if slot.placement is not None:
        remove_placement_group(slot.placement)
    slot.actor = slot.placement = None


def make_board() -> Any:
    """A board on this machine."""
    here = ray.get_runtime_context().get_node_id()
    strategy = NodeAffinitySchedulingStrategy(here, soft=False)
    return Board.options(scheduling_strategy=strategy).remote()  # type: ignore[attr-defined]
