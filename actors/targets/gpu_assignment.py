"""How Ray assigns accelerators to workers: what a worker asks for, and whether it sees its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from attnfuzz.actors.targets.registry import TARGETS

MOST_PER_DEVICE = 64
"""How many workers may share a device."""


def resources_of(targets: Iterable[str]) -> frozenset[str]:
    """What Ray calls that of which a worker for all of `targets` needs a share."""
    needed = (TARGETS[name].ray_resource for name in targets if name in TARGETS)
    return frozenset(resource for resource in needed if resource is not None)


def not_pinned(
    targets: Iterable[str],
    assigned: Mapping[str, Iterable[str]],
    environment: Mapping[str, str] = os.environ,
) -> str | None:
    """Why a worker for `targets` does not see just what Ray has `assigned` to it (ids by resource),
    in one sentence; None where it does. Two that believe to be alone on a device would report each
    other's lack of memory."""
    for name in targets:
        resource = TARGETS[name].ray_resource if name in TARGETS else None
        if resource is None:
            continue
        ids = [str(one) for one in assigned.get(resource, ())]
        variables = TARGETS[name].device_variables
        seen = {key: environment[key] for key in variables if key in environment}
        if not ids:
            return f"target {name}: Ray has given this worker no {resource}"
        if not any(_ids(text) == ids for text in seen.values()):
            found = ", ".join(f"{key}={text}" for key, text in seen.items()) or "no variable set"
            return f"target {name}: expected to see {resource} {','.join(ids)}, got {found}"
    return None


def _ids(text: str) -> list[str]:
    """The devices that a variable names: "0,1", or "level_zero:0,1"."""
    return text.rpartition(":")[2].split(",")


def visible(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that say which devices a process sees, as they are."""
    names = {name for target in TARGETS.values() for name in target.device_variables}
    return {name: environment[name] for name in sorted(names) if name in environment}
