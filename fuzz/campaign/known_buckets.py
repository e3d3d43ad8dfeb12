"""What is known already: the cases shipped with attnfuzz, and those of corpora that a campaign
names.

Here it is decided what a known bucket explains:

- A failure whose key has a stack (or a compiler's own words) is a known bucket's when the keys are
  equal, whatever it ran on. Nothing is run again for it.
- Many causes share a key without one, wrong numbers say. Before anything is run again for such a
  failure its program must have the whole trigger, the same outputs must be wrong, and it must have
  run on a device of the sort that the case is from: other devices have other kernels.
- What that leaves open is confirmed and minimized. Then it is a known bucket's as it would be one
  of the campaign's own (`corpus.bucket.merge_related`), if they share an example of each sort, but
  never because it is the simpler of the two: in the torch that the case is from, what is simpler
  passed.

A bucket that is merged into another is labelled as that one. A bucket that was split off another
explains what has its whole trigger, whatever its key. The label also says what was decided.

Keys and triggers follow from the programs and failures that are kept, by the rules of today. A
shipped case that needs preload files explains failures of campaigns that have those files too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, partial
from pathlib import Path

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Bucket, coarse, laid_out, wrong_outputs
from attnfuzz.corpus.case import SHIPPED, Case, find_cases, id_of, read_bucket, read_case
from attnfuzz.corpus.decisions.events import sentence
from attnfuzz.corpus.decisions.merging import Standing, standings
from attnfuzz.corpus.decisions.status import status
from attnfuzz.corpus.known_before import KnownBefore
from attnfuzz.corpus.known_issues import known_as
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import FailureKind, Layer


@dataclass(frozen=True)
class Known:
    """Known buckets, each labelled with what it is ("shipped: 4080b6d1"), and by a bucket's id the
    devices that its cases ran on. `before` says where those of corpora stand."""

    buckets: tuple[Bucket, ...] = ()
    devices: dict[str, frozenset[str]] = field(default_factory=dict)
    before: KnownBefore | None = None

    def __contains__(self, bucket: Bucket) -> bool:
        return bucket.id in self.devices

    @cached_property
    def by_key(self) -> dict[str, list[Bucket]]:
        """The buckets by their strong keys."""
        return by_key(self.buckets)

    def explaining(self, buckets: Iterable[Bucket], target: str) -> list[Bucket]:
        """Those of `buckets` that may explain a failure on `target` before it is minimized."""
        here = device_of(target)
        return [
            one
            for one in buckets
            if not one.needs_trigger or one not in self or here in self.devices[one.id]
        ]

    def steered_clear_of(self, target: str) -> list[Bucket]:
        """Those that programs for `target` are drawn clear of, sorted by id: with a case of the
        sort of device that it is, or of dynamo by their stack, which traces for any device. What
        an oracle finds of a result's metadata hides nothing, as nearly all of it is judged last."""
        here = device_of(target)
        there = [
            one
            for one in self.buckets
            if not (one.kind == FailureKind.METADATA_MISMATCH and one.outputs)
            and (
                here in self.devices[one.id]
                or (one.layer == Layer.DYNAMO and not one.needs_trigger)
            )
        ]
        return sorted(there, key=lambda one: one.id)

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


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A bucket as it is kept in `folder`, of which it has the cases of one key, by today's rules;
    the devices that they ran on; and where it stands."""

    bucket: Bucket
    devices: frozenset[str]
    folder: Path
    standing: Standing


def load_known(config: CampaignConfig, torch: str = "", on: date | None = None) -> Known:
    """What a campaign of that configuration knows from its beginning, on the day `on` (today by
    default) and with the version `torch`. Raises CaseError."""
    on = on or date.today()
    found: list[Kept] = []
    if config.shipped:
        loaded = {hashlib.sha256(file.read_bytes()).hexdigest() for file in config.preload}
        cases = [
            (folder, case)
            for folder, case in _cases([SHIPPED] if any(SHIPPED.glob("*/*")) else [])
            if all(one.sha256 in loaded for one in case.preload)
        ]
        found += _buckets(cases, "shipped", on)
    mine = kept_in(config.corpus, on)
    first = {one.bucket.id: one for one in reversed([*mine, *found])}
    return Known(
        tuple(one.bucket for one in first.values()),
        {name: one.devices for name, one in first.items()},
        _before(mine, torch) if config.corpus else None,
    )


def kept_in(corpora: Sequence[Path], on: date) -> list[Kept]:
    """The buckets that are kept in `corpora`, as they stand on that day. Raises CaseError."""
    return _buckets(_cases(corpora), "corpus", on)


def by_key(buckets: Iterable[Bucket]) -> dict[str, list[Bucket]]:
    """Buckets by their strong keys."""
    there: dict[str, list[Bucket]] = {}
    for bucket in buckets:
        there.setdefault(bucket.strong, []).append(bucket)
    return there


def cause_of(bucket: Bucket) -> str:
    """The id of the bucket that `bucket` is known as, else its own: of what is known there is a
    bucket for each key and each tensor that is laid out in another way."""
    return known_as(bucket.known_issue) or bucket.id


def device_of(target: str) -> str:
    """The sort of device that programs for `target` are made for: "cpu", "cuda", "npu" …"""
    return TARGETS[target].device if target in TARGETS else target


def _cases(corpora: Sequence[Path]) -> list[tuple[Path, Case]]:
    """The cases in `corpora`, each with its bucket's folder. One that is empty has none yet."""
    filled = [corpus for corpus in corpora if not _is_empty(corpus)]
    return [(folder.parent, read_case(folder)) for folder in find_cases(filled)] if filled else []


def _is_empty(corpus: Path) -> bool:
    return corpus.is_dir() and all(one.name.startswith(".") for one in corpus.iterdir())


def _buckets(cases: Iterable[tuple[Path, Case]], where: str, on: date) -> list[Kept]:
    """A bucket for each key that the cases of a bucket's folder have, and for each tensor that is
    laid out in another way: what fails so for q and for k fails for no layout of both."""
    groups: dict[Path, dict[tuple[str, ...], list[Case]]] = {}
    for folder, case in cases:
        strong = signature(case.failure, case.program).strong
        laid = sorted(laid_out(features(case.program)))
        groups.setdefault(folder, {}).setdefault((strong, *laid), []).append(case)
    stand = {
        one.folder: one
        for corpus in {folder.parent for folder in groups}
        for one in standings(corpus, on).values()
    }
    found: list[Kept] = []
    for folder, by_key in groups.items():
        recorded = read_bucket(folder)
        alone = Standing(folder=folder, status=status(folder, on), stays=id_of(folder))
        standing = stand.get(folder, alone)
        keys = sorted(by_key, key=partial(_is_further, recorded, by_key))
        for key in keys:
            bucket = _as_of_today(recorded, by_key[key], where, standing)
            if key != keys[0]:
                digest = hashlib.sha256("\0".join((recorded.id, *key)).encode()).hexdigest()
                bucket = replace(bucket, id=digest[:8])
            targets = (case.environment.get("target", DEFAULT) for case in by_key[key])
            devices = frozenset(map(device_of, targets))
            kept = Kept(bucket=bucket, devices=devices, folder=folder, standing=standing)
            found.append(kept)
    return found


def _is_further(
    recorded: Bucket, by_key: Mapping[tuple[str, ...], Sequence[Case]], key: tuple[str, ...]
) -> tuple[bool, bool, tuple[str, ...]]:
    """What cases of a key come after, so that the bucket that was recorded is the first."""
    has_all = recorded.trigger <= features(by_key[key][0].program)
    return key[0] != recorded.strong, not has_all, key


def _before(mine: Sequence[Kept], torch: str) -> KnownBefore:
    """Where the buckets of corpora stand, by the one that stays."""
    groups: dict[str, dict[Path, Standing]] = {}
    for one in mine:
        groups.setdefault(cause_of(one.bucket), {})[one.folder] = one.standing
    before = KnownBefore(torch=torch[:_TEXT])
    for name, members in groups.items():
        there = [one.status for one in members.values()]
        back = next(filter(None, (one.came_back(torch) for one in there)), None)
        if back:
            before.would_come_back[name] = back[:_TEXT]
        passed = [one.stopped(torch) for one in there]
        if all(passed):
            before.stopped[name] = str(passed[0])[:_TEXT]
        was = next((one.expired for one in there if one.expired and not one.merged_into), None)
        if was:
            before.expired[name] = sentence(was.said)[:_TEXT]
    return before


_TEXT = 300
_LABEL = 150
"""Characters of what is said of a bucket in `known.yaml`, and of a decision in a label."""


def _as_of_today(recorded: Bucket, cases: Sequence[Case], where: str, standing: Standing) -> Bucket:
    """The bucket of `cases`, which share a key, by today's rules. What was recorded of its trigger
    stands, since more programs than are kept may have been of it, unless features have got other
    names."""
    found = signature(cases[0].failure, cases[0].program)
    traits = [features(case.program) for case in cases]
    trigger = frozenset.intersection(*traits)
    sorts = frozenset.intersection(*map(coarse, traits))
    holds = recorded.trigger <= trigger and recorded.sorts <= sorts
    stands = standing.status
    said = stands.label if not stands.merged_into else ""
    name = standing.stays if standing.stays != id_of(standing.folder) else recorded.id
    label = ", ".join(filter(None, (name, said[:_LABEL], recorded.known_issue)))
    return replace(
        recorded,
        strong=found.strong,
        needs_trigger=found.needs_trigger or stands.split_from is not None,
        aliases=found.aliases,
        trigger=recorded.trigger if holds else trigger,
        sorts=recorded.sorts if holds else sorts,
        outputs=recorded.outputs.union(*(wrong_outputs(case.failure) for case in cases)),
        known_issue=f"{where}: {label}",
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
