"""The workers of a campaign: on this machine, or on the nodes of a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from attnfuzz.actors.node import digest
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.corpus.store.machine_deaths import machine_deaths
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig, ConfigError, WorkersConfig
from attnfuzz.fuzz.pool.cluster import Cluster
from attnfuzz.fuzz.pool.groups import WorkerGroup
from attnfuzz.fuzz.pool.pool import Pool
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import read_text


def worker_config(config: CampaignConfig, scratch: Path) -> WorkerConfig:
    """What a worker of the campaign is."""
    return WorkerConfig(
        scratch=str(scratch),
        toolchain=config.python,
        targets=tuple(config.targets),
        preload=tuple(str(path) for path in config.preload),
        per_device=config.workers_per_device,
        limits=config.limits,
        deadlines=config.deadlines,
    )


def open_workers(config: CampaignConfig, scratch: Path, store: Store) -> Pool:
    """Its workers; those of this machine under `scratch`. `store` is told which programs machines
    die of, and knows those of before. Raises SandboxError."""
    from attnfuzz.fuzz.pool.deaths import Deaths  # Ray takes a second to import
    from attnfuzz.fuzz.pool.ray_pool import RayPool

    settled = worker_config(config, scratch)
    deaths = Deaths(store.read(machine_deaths), store.record_death)
    return RayPool(settled, groups_of(config), cluster=cluster_of(config), deaths=deaths)


def cluster_of(config: CampaignConfig) -> Cluster | None:
    """The cluster that its workers are on; None for this machine alone."""
    if config.ray_address is None:
        return None
    return Cluster(
        address=config.ray_address,
        runtime_env=config.runtime_env,
        ship_code=config.ship_code,
        toolchain=config.toolchain,
        preload=tuple((path.name, read_text(path)) for path in config.preload),
        code=digest(),
    )


def groups_of(config: CampaignConfig) -> Sequence[WorkerGroup]:
    """The groups that its workers are in: one of all, or those that each target has."""
    if isinstance(config.workers, int):
        targets, each = tuple(config.targets), config.workers_per_device
        alike = WorkerGroup(
            targets=targets, count=config.workers, per_device=each, pinned=config.pin_cpus
        )
        return (alike,)
    return tuple(
        WorkerGroup(
            targets=(target,),
            count=_count(one, config),
            nodes=one.nodes,
            cpus=one.cpus,
            cards=one.devices,
            per_device=one.per_device or config.workers_per_device,
            pinned=config.pin_cpus,
            accelerator_type=one.accelerator_type,
            resources=tuple(sorted(one.resources.items())),
            toolchain=one.toolchain,
            runtime_env=one.runtime_env,
        )
        for target, groups in config.workers.items()
        for one in groups
    )


def _count(one: WorkersConfig, config: CampaignConfig) -> int | None:
    if one.count != "auto":
        return one.count
    if config.ray_address is not None:
        return None
    return max(1, len(os.sched_getaffinity(0)) // one.cpus)


def _check_shares(groups: Sequence[WorkersConfig], config: CampaignConfig, where: str) -> None:
    for one in groups:
        each = one.per_device or config.workers_per_device
        if one.devices > 1 and each > 1:
            expected = mismatch(f"{where}.devices", f"1, as {each} workers share a device")
            raise ConfigError(f"{expected}, got {one.devices}.")


def _check_nodes(
    groups: Sequence[WorkersConfig], target: str, config: CampaignConfig, where: str
) -> None:
    """Raises ConfigError where workers on several nodes cannot be had, or would be of no use."""
    for one in groups:
        if one.nodes == 1:
            continue
        if config.ray_address is None:
            expected = "1, as there is no cluster (ray_address)"
            raise ConfigError(f"{mismatch(f'{where}.nodes', expected, str(one.nodes))}.")
        if TARGETS[target].ranks_seen != "all":
            expected = f"1, as {target} runs no ranks as processes"
            raise ConfigError(f"{mismatch(f'{where}.nodes', expected, str(one.nodes))}.")
        if one.count == "auto":
            expected = "a number, as each has several nodes"
            raise ConfigError(f"{mismatch(f'{where}.count', expected, 'auto')}.")


def check_workers(config: CampaignConfig, where: str) -> None:
    """Raises ConfigError where workers are for no target of the campaign, or a target has none."""
    if config.ray_address is not None and config.ray_address.startswith("ray://"):
        expected = "HOST:PORT of a cluster, or auto; attnfuzz submit runs a campaign from outside"
        raise ConfigError(f"{mismatch(f'{where}: ray_address', expected, config.ray_address)}.")
    if isinstance(config.workers, int):
        return
    for target, groups in config.workers.items():
        _check_shares(groups, config, f"{where}: workers.{target}")
        if target not in config.targets:
            names = ", ".join(config.targets)
            raise ConfigError(f"{mismatch(f'{where}: workers.{target}', f'one of {names}')}.")
        _check_nodes(groups, target, config, f"{where}: workers.{target}")
    for target, weight in config.targets.items():
        if weight and target not in config.workers:
            expected = f"workers for {target} too, or no weight for it in targets"
            raise ConfigError(f"{mismatch(f'{where}: workers', expected)}.")
