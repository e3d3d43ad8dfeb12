"""What is known already: the cases shipped with attnfuzz, and those of corpora that a campaign
names.

Here it is decided what a known bucket explains:

- A failure whose key has a stack (or a compiler's own words) is a known bucket's when the keys are
  equal, whatever it ran on. Nothing is run again for it.
- Many causes share a key without one, wrong numbers say. Before anything is run again for such a
  failure its program must have the whole trigger, the same outputs must be wrong, and it must have
  run on a device of the sort that the case is from: other devices have other kernels.
- What that leaves open is confirmed and minimized. Then it is a known bucket's as it would be one
  of the campaign's own (`corpus.bucket.merge_related`), but never because it is the simpler of the
  two: in the torch that the case is from, what is simpler passed.

Keys and triggers follow from the programs and failures that are kept, by the rules of today. A
shipped case that needs preload files explains failures of campaigns that have those files too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnfuzz.actors.targets.registry import DEFAULT, TARGETS
from attnfuzz.corpus.bucket import Bucket, coarse, wrong_outputs
from attnfuzz.corpus.case import SHIPPED, Case, find_cases, read_bucket, read_case
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.generators.model.features import features


@dataclass(frozen=True)
class Known:
    """Known buckets, each labelled with what it is ("shipped: 4080b6d1"), and by a bucket's id the
    devices that its cases ran on."""

    buckets: tuple[Bucket, ...] = ()
    devices: dict[str, frozenset[str]] = field(default_factory=dict)

    def __contains__(self, bucket: Bucket) -> bool:
        return bucket.id in self.devices

    def explaining(self, buckets: Iterable[Bucket], target: str) -> list[Bucket]:
        """Those of `buckets` that may explain a failure on `target` before it is minimized."""
        here = device_of(target)
        return [
            one
            for one in buckets
            if not one.needs_trigger or one not in self or here in self.devices[one.id]
        ]

    def with_own(self, own: Iterable[Bucket]) -> list[Bucket]:
        """`own`, a campaign's buckets, as far as they are known so labelled, and the others that
        are known."""
        known = {bucket.id: bucket for bucket in self.buckets}
        there = [
            replace(known.pop(one.id), tried=one.tried) if one.id in known else self._labelled(one)
            for one in own
        ]
        return [*there, *known.values()]

    def _labelled(self, bucket: Bucket) -> Bucket:
        if bucket.known_issue is not None:
            return bucket
        same = (one for one in self.buckets if _is_part(one, bucket))
        label = next((one.known_issue for one in same), None)
        return replace(bucket, known_issue=label)


def load_known(config: CampaignConfig) -> Known:
    """What a campaign of that configuration knows from its beginning. Raises CaseError."""
    found: list[tuple[Bucket, frozenset[str]]] = []
    if config.shipped:
        loaded = {hashlib.sha256(file.read_bytes()).hexdigest() for file in config.preload}
        kept = [
            (folder, case)
            for folder, case in _cases([SHIPPED] if any(SHIPPED.glob("*/*")) else [])
            if all(one.sha256 in loaded for one in case.preload)
        ]
        found += _buckets(kept, "shipped")
    found += _buckets(_cases(config.corpus), "corpus")
    first = {bucket.id: (bucket, devices) for bucket, devices in reversed(found)}
    return Known(
        tuple(bucket for bucket, _ in first.values()),
        {name: devices for name, (_, devices) in first.items()},
    )


def device_of(target: str) -> str:
    """The sort of device that programs for `target` are made for: "cpu", "cuda", "npu" …"""
    return TARGETS[target].device if target in TARGETS else target


def _cases(corpora: Sequence[Path]) -> list[tuple[Path, Case]]:
    """The cases in `corpora`, each with its bucket's folder."""
    return [(folder.parent, read_case(folder)) for folder in find_cases(corpora)] if corpora else []


def _buckets(cases: Iterable[tuple[Path, Case]], where: str) -> list[tuple[Bucket, frozenset[str]]]:
    """A bucket for each key that the cases of a bucket's folder have, and their devices."""
    groups: dict[Path, dict[str, list[Case]]] = {}
    for folder, case in cases:
        key = signature(case.failure, case.program).strong
        groups.setdefault(folder, {}).setdefault(key, []).append(case)
    found: list[tuple[Bucket, frozenset[str]]] = []
    for folder, by_key in groups.items():
        recorded = read_bucket(folder)
        keys = sorted(by_key, key=lambda key: (key != recorded.strong, key))
        for key in keys:
            bucket = _as_of_today(recorded, by_key[key], where)
            if key != keys[0]:
                digest = hashlib.sha256(f"{recorded.id}\0{key}".encode()).hexdigest()
                bucket = replace(bucket, id=digest[:8])
            targets = (case.environment.get("target", DEFAULT) for case in by_key[key])
            found.append((bucket, frozenset(map(device_of, targets))))
    return found


def _as_of_today(recorded: Bucket, cases: Sequence[Case], where: str) -> Bucket:
    """The bucket of `cases`, which share a key, by today's rules. What was recorded of its trigger
    stands, since more programs than are kept may have been of it, unless features have got other
    names."""
    found = signature(cases[0].failure, cases[0].program)
    traits = [features(case.program) for case in cases]
    trigger = frozenset.intersection(*traits)
    sorts = frozenset.intersection(*map(coarse, traits))
    stands = recorded.trigger <= trigger and recorded.sorts <= sorts
    thread = f", {recorded.known_issue}" if recorded.known_issue else ""
    return replace(
        recorded,
        strong=found.strong,
        needs_trigger=found.needs_trigger,
        aliases=found.aliases,
        trigger=recorded.trigger if stands else trigger,
        sorts=recorded.sorts if stands else sorts,
        outputs=recorded.outputs.union(*(wrong_outputs(case.failure) for case in cases)),
        known_issue=f"{where}: {recorded.id}{thread}",
    )


def _is_part(known: Bucket, bucket: Bucket) -> bool:
    """Whether `bucket`, whose program is minimized, is of the cause of `known`."""
    return known.strong == bucket.strong and (
        not known.needs_trigger
        or (
            known.trigger <= bucket.trigger
            and known.sorts <= bucket.sorts
            and (not known.outputs or bucket.outputs <= known.outputs)
        )
    )
