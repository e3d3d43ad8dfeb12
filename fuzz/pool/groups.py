"""Groups of workers, and how many of each a machine has room for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attnfuzz.actors.sandbox.fork_server import SandboxError
from attnfuzz.actors.targets.gpu_assignment import resources_of

SHARES = 10_000
"""Into how many parts Ray divides one of a resource."""

ACCELERATOR_TYPE = "accelerator_type:"
"""What the resource begins with by which Ray says which accelerator a node has."""

CPU = "CPU"


@dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """Workers that are alike: `count` of them, or with None as many as the nodes have room for.

    Each is on so many `nodes`, over which it spreads the ranks of programs. On each it has `cpus`
    CPUs, and what Ray calls the devices of `targets` (`cards` of them, or one of
    `per_device` parts of one), on a node with that `accelerator_type`, if any, and with those
    `resources`. `toolchain` is an interpreter on the node, None for the one that runs the worker;
    `runtime_env` is Ray's. `pinned`: programs run on CPUs that are the worker's alone, as far as it
    has no device, beside which drivers and compilers have threads of their own.
    """

    targets: tuple[str, ...]
    count: int | None = None
    nodes: int = 1
    cpus: int = 1
    cards: int = 1
    per_device: int = 1
    pinned: bool = False
    accelerator_type: str | None = None
    resources: tuple[tuple[str, float], ...] = ()
    toolchain: str | None = None
    runtime_env: Mapping[str, Any] = field(default_factory=dict)

    @property
    def devices(self) -> frozenset[str]:
        """What Ray calls the devices of which each worker needs a share."""
        return resources_of(self.targets)

    @property
    def share(self) -> float:
        """How many devices each worker has."""
        return self.cards if self.per_device == 1 else SHARES // self.per_device / SHARES

    @property
    def own_cpus(self) -> int:
        """How many CPUs each worker is to have to itself."""
        return self.cpus if self.pinned and not self.devices else 0

    @property
    def needs(self) -> dict[str, float]:
        """What one worker needs of each of its nodes, as Ray calls it."""
        needs = {
            CPU: float(self.cpus),
            **dict(self.resources),
            **dict.fromkeys(self.devices, self.share),
        }
        if self.accelerator_type is not None:
            needs[ACCELERATOR_TYPE + self.accelerator_type] = 0.001
        return needs

    def options(self) -> dict[str, Any]:
        """The same as options of a Ray actor."""
        others = dict(self.resources) | {name: self.share for name in self.devices if name != "GPU"}
        options: dict[str, Any] = {
            "num_cpus": self.cpus,
            "num_gpus": self.share if "GPU" in self.devices else 0,
            "resources": others,
        }
        if self.accelerator_type is not None:
            options["accelerator_type"] = self.accelerator_type
        if self.runtime_env:
            options["runtime_env"] = dict(self.runtime_env)
        return options

    def serves(self, target: str | None) -> bool:
        """Whether its workers run what is for `target`."""
        return target is None or target in self.targets

    def hardware(self, environment: Mapping[str, str], node: Mapping[str, float]) -> str:
        """What a worker of the group has that others of its target may not: its card, as its
        toolchain's `environment` or else Ray's resources of its `node` name it, the resources that
        the group asks for, and on how many nodes it is, where these are several. The same after
        another start, on other nodes."""
        named = (name.removeprefix(ACCELERATOR_TYPE) for name in sorted(node))
        kinds = [one for one, name in zip(named, sorted(node), strict=True) if one != name]
        card = environment.get("card") or ", ".join(kinds) if self.devices else ""
        nodes = f"{self.nodes} nodes" if self.nodes > 1 else ""
        return ", ".join(filter(None, (card, *(name for name, _ in self.resources), nodes)))

    def __str__(self) -> str:
        kind = f" ({self.accelerator_type})" if self.accelerator_type else ""
        return ", ".join(self.targets) + kind


def room(groups: Sequence[WorkerGroup], node: Mapping[str, float]) -> list[int]:
    """How many workers of each group fit on a node with those resources, where the count of the
    group is open (0 for the others). Who needs a device comes first, and keeps a CPU for it where
    there is such a device: a CPU is anybody's."""
    left, fit = dict(node), [0] * len(groups)
    order = sorted(range(len(groups)), key=lambda place: (-len(groups[place].needs), place))
    for place in order:
        group = groups[place]
        count = _times(group.needs, left)
        if group.count is None:
            fit[place] = count
        elif group.nodes > 1 or len(group.needs) == 1:  # see `without_spread`; any CPUs will do
            continue
        for name, each in group.needs.items():
            left[name] = left.get(name, 0.0) - each * min(count, group.count or count)
    return fit


def without_spread(
    groups: Sequence[WorkerGroup], nodes: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """The resources of the nodes without those for workers that are on several: Ray places these,
    where it is supposed to take those nodes that have most CPUs left."""
    left = {name: dict(resources) for name, resources in nodes.items()}
    for group in groups:
        for _ in range(group.count or 0 if group.nodes > 1 else 0):
            fit = [name for name in left if _times(group.needs, left[name])]
            fit.sort(key=lambda name: (-left[name].get(CPU, 0.0), name))
            for name in fit[: group.nodes] if len(fit) >= group.nodes else ():
                for resource, each in group.needs.items():
                    left[name][resource] -= each
    return left


def _times(needs: Mapping[str, float], left: Mapping[str, float]) -> int:
    slack = 1e-6
    return min(max(0, int((left.get(name, 0.0) + slack) / each)) for name, each in needs.items())


def check_devices(groups: Iterable[WorkerGroup], there: Mapping[str, float]) -> None:
    """Raises SandboxError where this machine has fewer devices, by Ray's names, than workers need
    whose count is fixed."""
    for group in groups:
        for name in sorted(group.devices):
            found, each, count = int(there.get(name, 0)), group.per_device, group.count or 0
            needed = -(-count // each) * group.cards
            if found < needed:
                raise SandboxError(
                    f"workers: {count} need {needed} {name} with "
                    f"workers_per_device {each}, and Ray finds {found}"
                )


def fixed_cpus(groups: Iterable[WorkerGroup]) -> int:
    """How many CPUs the workers need that have a count of their own."""
    return sum((group.count or 0) * group.cpus for group in groups)
