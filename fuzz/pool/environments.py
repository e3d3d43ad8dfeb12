"""What the programs of a target run on: as its first worker has told, and the first of each
hardware, as the machines and cards of one target may differ. Its toolchains may not."""

from __future__ import annotations

from collections.abc import Iterable

from attnfuzz.fuzz.environment import toolchain_differences

Environment = dict[str, str]

OF_HARDWARE = ("card", "architecture", "cpu", "os")
"""What an environment says of the machine and its card."""

HARDWARE = "hardware"
"""As what an environment names a worker's hardware, where its card does not say it."""


class Environments:
    """See the module's docstring. Empty until the first worker has told."""

    def __init__(self) -> None:
        self._first: dict[str, Environment] = {}
        self._of: dict[tuple[str, str], Environment] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    def __contains__(self, target: str) -> bool:
        return target in self._first

    def differ(
        self, target: str, told: Environment, otherwise: Environment
    ) -> Iterable[tuple[str, tuple[str, str]]]:
        """What a worker of `target` that has `told` this has of another toolchain than the first,
        or where there was none than `otherwise`: (key, (there, here))."""
        return toolchain_differences(self._first.get(target, otherwise), told).items()

    def take(self, target: str, hardware: str | None, told: Environment) -> None:
        """Notes what a worker has told."""
        self._first.setdefault(target, told)
        if hardware:
            self._of.setdefault((target, hardware), told)

    def first(self, targets: Iterable[str]) -> Environment:
        """That of the first of `targets` that has one. Raises StopIteration where none has."""
        return next(self._first[name] for name in targets if name in self._first)

    def of(self, target: str, hardware: str | None) -> Environment:
        """That of the target's workers with that hardware; where none has told yet, without what
        another's card and machine would be. Raises KeyError where the target has no workers."""
        first = self._first[target]
        if not hardware:
            return first
        shared = {name: text for name, text in first.items() if name not in OF_HARDWARE}
        told = self._of.get((target, hardware), shared)
        return told if told.get("card") == hardware else told | {HARDWARE: hardware}
