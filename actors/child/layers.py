"""Which layer is to blame: the first of dynamo, aot_eager and Inductor at which a failure shows."""

from __future__ import annotations

from collections.abc import Callable

from attnfuzz.actors.child.outcomes import Data

LAYERS = (("eager", "dynamo"), ("aot_eager", "aot_eager"))
"""Backends that stop earlier, with the layer that each adds."""

OWN = {"eager": "dynamo", "aot_eager": "aot_eager", "inductor": "inductor"}


def blame(backend: str, failure: Data, rerun: Callable[[str], Data | None]) -> str:
    """The layer that `failure`, seen with `backend`, comes from. `rerun(backend)` gives the
    failure of the same program with another backend, None if there is none."""
    for earlier, layer in LAYERS:
        if earlier == backend:
            break
        other = rerun(earlier)
        if other is not None and alike(failure, other):
            return layer
    return OWN.get(backend, "inductor")


def alike(failure: Data, other: Data) -> bool:
    """Whether two failures are one: the same kind and exception type, or the same properties of
    the same outputs wrong."""
    if failure["kind"] != other["kind"]:
        return False
    if failure["raised"] is not None or other["raised"] is not None:
        return _type(failure) == _type(other)
    return bool(_differing(failure) & _differing(other))


def _type(failure: Data) -> str | None:
    return failure["raised"]["type"] if failure["raised"] else None


def _differing(failure: Data) -> set[tuple[str, str]]:
    return {(d["output"], d["what"]) for d in failure["diffs"]}
