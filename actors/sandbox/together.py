"""The outcome of a program of several ranks, by those of its ranks.

It is rank 0's, or the failure of the rank that failed on its own account; and where all pass, it is
a failure still if they did not do the same together (see `sandbox.collectives`) or do not have
alike what all have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from attnfuzz.actors.child.outcomes import Data, diff, failure
from attnfuzz.actors.sandbox import collectives
from attnfuzz.actors.sandbox.collectives import Record

_LOST_PEERS = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|recv(?:Vector|Value) failed"
    r"|Connection was likely closed|connectFullMesh failed|Application timeout caused pair closure"
)
"""What gloo and its store say to those that remain when a rank has ended."""


def combined(
    outcomes: Mapping[int, Data], records: Mapping[int, Record], size: int, layer: str
) -> Data:
    """The data of the outcome of all `size` ranks, of which each has left its own or was stopped;
    `records` are what they did together, `layer` is that which the program is compiled by."""
    extra = {rank: _taken_out(one) for rank, one in outcomes.items()}
    speaks = outcomes.get(0) or next(iter(outcomes.values()))
    if broken := [one for one in outcomes.values() if one["status"] == "not_run"]:
        return broken[0]
    failed = {rank: one["failure"] for rank, one in sorted(outcomes.items()) if one["failure"]}
    reasons = [one["rejection"] for one in outcomes.values() if one["status"] == "rejected"]
    own = [rank for rank, found in failed.items() if not _lost_its_peers(found)]
    if reasons and not own:
        return speaks | {"status": "rejected", "rejection": reasons[0], "failure": None}
    if not failed:
        found = _parted(records, layer, extra) or _disagreement(extra)
        return speaks if found is None else speaks | {"status": "failed", "failure": found}
    crashed = [rank for rank in own if failed[rank]["kind"] == "crash"]
    rank = (crashed or own or list(failed))[0]
    found = failed[rank]
    others = f"; failed: {collectives.ranks_said(list(failed))}" if len(failed) > 1 else ""
    found["evidence"] |= {"rank": f"rank {rank} of {size}{others}"} | _together(records)
    return speaks | {"status": "failed", "failure": found, "rejection": None}


def _taken_out(one: Data) -> Data:
    """What of a rank's outcome is for us alone."""
    return {name: one.pop(name, None) for name in ("compiled since", "digests")}


def _lost_its_peers(found: Data) -> bool:
    return bool(found["raised"] and _LOST_PEERS.search(found["raised"]["message"]))


def lost_each_other(outcomes: Mapping[int, Data]) -> bool:
    """Whether all that the ranks say is that they have lost others, which none has left: what is
    between them failed, and not the program."""
    failures = [one["failure"] for one in outcomes.values()]
    return bool(failures) and all(one and _lost_its_peers(one) for one in failures)


def _together(records: Mapping[int, Record]) -> dict[str, str]:
    """Evidence of a failure: where the ranks parted before it, if they did, and what each waited
    in."""
    lines = [f"rank {rank} {said}" for rank, said in collectives.waiting(records).items()]
    parting = collectives.divergence(records, ended=False)
    return {"collectives": "\n".join([*([str(parting)] if parting else []), *lines])}


def _parted(records: Mapping[int, Record], layer: str, extra: Mapping[int, Data]) -> Data | None:
    """The failure of ranks that have all passed, and have not done the same together."""
    found = collectives.divergence(records, ended=True)
    if found is None:
        return None
    since = min((one["compiled since"] or found.since_ns + 1 for one in extra.values()), default=0)
    return failure(
        "metadata_mismatch",
        "check",
        layer="eager" if found.since_ns < since else layer,
        oracle="collectives",
        diffs=[diff("collectives", "sequence", found.expected, found.actual, call=0)],
        evidence={"collectives": str(found), "rank": collectives.ranks_said(found.ranks)},
    )


def _disagreement(extra: Mapping[int, Data]) -> Data | None:
    """The failure of ranks that have all passed, of which some have another value of a result that
    all have whole. Each has judged its own against the reference, so this is about bits."""
    texts = {rank: one["digests"] or [] for rank, one in extra.items()}
    for here in zip(*texts.values(), strict=False):
        layer, call, output, _ = here[0]
        ways: dict[str, list[int]] = {}
        for rank, one in zip(texts, here, strict=True):
            ways.setdefault(json.dumps(one), []).append(rank)
        if len(ways) > 1:
            _, *fewer = sorted(ways.values(), key=len, reverse=True)
            odd = collectives.ranks_said(sorted(rank for ranks in fewer for rank in ranks))
            found = diff(output, "replicas", "the same on all ranks", f"not on {odd}", call=call)
            return failure(
                "metadata_mismatch",
                "check",
                layer=layer,
                oracle="replicas",
                diffs=[found],
                evidence={"rank": odd},
            )
    return None
