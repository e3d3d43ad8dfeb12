"""The cluster that a campaign's workers are on, and what they are given there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool.groups import WorkerGroup


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`address` of a Ray cluster ("auto": that of this machine), and what its workers get:
    `runtime_env` is Ray's; with `ship_code` they have our code from here. `toolchain` is an
    interpreter on the nodes, None for the one that runs the worker; `preload` are names and texts
    of files; `code` is the digest of the code that they must have."""

    address: str
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    ship_code: bool = True
    toolchain: str | None = None
    preload: tuple[tuple[str, str], ...] = ()
    code: str = ""

    def config_for(self, config: WorkerConfig, group: WorkerGroup) -> WorkerConfig:
        """What a worker of the group is, whatever it finds on its node."""
        return replace(
            config, scratch="", preload=(), targets=group.targets, per_device=group.per_device
        )
