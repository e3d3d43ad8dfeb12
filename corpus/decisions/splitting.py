"""Cases of a bucket become a bucket of their own, and are put together again.

That takes several steps. Each is whole or not done, in an order in which whoever repeats the
command after it was killed does what is left. At any moment each case lies in one bucket.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnfuzz.corpus.bucket import Bucket, bucket_to_data, coarse, new_bucket, wrong_outputs
from attnfuzz.corpus.case import (
    BUCKET,
    Case,
    CaseError,
    buckets_in,
    case_folders,
    read_bucket,
    read_case,
    write_bucket,
)
from attnfuzz.corpus.decisions.events import MergedInto, SplitFrom, SplitInto
from attnfuzz.corpus.decisions.history import HISTORY, append, file_of, history, nothing_since
from attnfuzz.corpus.decisions.status import in_force
from attnfuzz.corpus.files import locked, make_folder_atomically, move_folder
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.codec import dump_yaml
from attnfuzz.generators.model.features import features
from attnfuzz.generators.reading.complaints import mismatch


def split(
    bucket_folder: Path,
    names: Sequence[str],
    by: str | None = None,
    looked_at: str | None = None,
) -> Path:
    """The cases called `names`, or how they begin, of the bucket in that folder become a bucket of
    their own, whose folder it gives: failures that have all that its programs have in common are
    its. See `nothing_since` for `looked_at`. Raises CaseError, and OSError."""
    with locked(bucket_folder.parent):
        events = history(bucket_folder)
        nothing_since(bucket_folder, events, looked_at)
        done = [one.said for one in in_force(events) if isinstance(one.said, SplitInto)]
        here = {one.name: one for one in case_folders(bucket_folder)}
        known = sorted({*here, *(case for said in done for case in said.cases)})
        cases = sorted({_only(bucket_folder, name, known) for name in names})
        same = next((said for said in done if said.cases == cases), None)
        if same is None and (set(cases) - here.keys() or not here.keys() - set(cases)):
            got = "all" if not here.keys() - set(cases) else "one that was split off before"
            raise CaseError(mismatch(bucket_folder, f"some of {', '.join(sorted(here))}", got))
        old = read_bucket(bucket_folder)
        new = same.other if same else _id(old, cases)
        there = buckets_in(bucket_folder.parent).get(new)
        if there is None:
            there = _make(bucket_folder, replace(_of(old, here, cases), id=new), cases, by)
        if same is None:
            append(bucket_folder, events, SplitInto(by=by, other=new, cases=cases))
        for case in cases:
            if case in here:
                move_folder(here[case], there)
        left = [read_case(folder) for name, folder in here.items() if name not in cases]
        write_bucket(bucket_folder.parent, _common(old, left))
        return there


def rejoin(bucket_folder: Path, said: SplitInto, by: str | None) -> None:
    """What was split off the bucket in that folder is a part of it again, in a corpus that is
    locked. Raises CaseError, and OSError."""
    there = buckets_in(bucket_folder.parent).get(said.other)
    if there is None:
        return
    events = history(there)
    name = read_bucket(bucket_folder).id
    if all(one.said.kind != "merged-into" for one in in_force(events)):
        append(there, events, MergedInto(by=by, other=name))


def _only(bucket_folder: Path, name: str, known: Sequence[str]) -> str:
    found = [one for one in known if one.startswith(name)]
    if len(found) != 1:
        raise CaseError(mismatch(f"{bucket_folder}: {name}", f"one case, of {', '.join(known)}"))
    return found[0]


def _id(old: Bucket, cases: Sequence[str]) -> str:
    return hashlib.sha256("\0".join((old.id, "split", *cases)).encode()).hexdigest()[:8]


def _of(old: Bucket, here: dict[str, Path], cases: Sequence[str]) -> Bucket:
    """The bucket of some cases of another. Failures of the other's key are told apart by what the
    programs have, where a stack is in that key too."""
    read = [read_case(here[case]) for case in cases]
    first = read[0]
    found = signature(first.failure, first.program)
    fresh = new_bucket(found, first.failure, features(first.program), known_issue=old.known_issue)
    tried = {case: old.tried[case] for case in cases if case in old.tried}
    return replace(_common(fresh, read), needs_trigger=True, tried=tried)


def _common(bucket: Bucket, cases: Sequence[Case]) -> Bucket:
    """`bucket` with what its `cases` have in common."""
    traits = [features(case.program) for case in cases]
    return replace(
        bucket,
        trigger=frozenset.intersection(*traits),
        sorts=frozenset.intersection(*map(coarse, traits)),
        outputs=frozenset().union(*(wrong_outputs(case.failure) for case in cases)),
    )


def _make(bucket_folder: Path, bucket: Bucket, cases: list[str], by: str | None) -> Path:
    """The new bucket's folder, with its history and without cases."""
    name, text = file_of(SplitFrom(by=by, other=read_bucket(bucket_folder).id, cases=cases), 1)
    folder = bucket_folder.parent / bucket.folder
    files = {BUCKET: dump_yaml(bucket_to_data(bucket)), f"{HISTORY}/{name}": text}
    make_folder_atomically(folder, files)
    return folder
