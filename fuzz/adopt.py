"""A corpus takes in what a campaign has found: the memory between nights.

Each step is whole or not done, and what was done is not done again. So a command that was killed is
simply repeated, and two campaigns may be taken in at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from attnfuzz.corpus.bucket import Bucket, Tried, bucket_to_data, joined, may_explain, merge_related
from attnfuzz.corpus.case import (
    BUCKET,
    Case,
    buckets_in,
    case_files,
    case_folders,
    id_of,
    read_bucket,
    read_case,
    write_bucket,
)
from attnfuzz.corpus.confirmation import confirmation_files
from attnfuzz.corpus.decisions.events import Seen
from attnfuzz.corpus.decisions.history import add_event, history
from attnfuzz.corpus.decisions.observing import note_seen, note_tried_in
from attnfuzz.corpus.decisions.status import status
from attnfuzz.corpus.files import locked, make_folder_atomically
from attnfuzz.corpus.known_issues import known_as
from attnfuzz.corpus.retried import read_retried
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import DATABASE, Store
from attnfuzz.fuzz.campaign.known_buckets import Kept, kept_in
from attnfuzz.fuzz.campaign.save_case import CORPUS
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.model.codec import dump_yaml
from attnfuzz.generators.model.features import features
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.files import is_there


@dataclass
class Adopted:
    """What a corpus has taken in: ids of buckets that it did not have and of those that it had,
    how many cases it got, how many it left out since their buckets had enough, and by a bucket's id
    why that came back."""

    new: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    cases: int = 0
    left_out: int = 0
    came_back: dict[str, str] = field(default_factory=dict)


def adopt(directory: Path, corpus: Path, most: int, on: date) -> Adopted:
    """Takes the buckets and cases of the campaign in `directory`, or of the corpus that it is, into
    `corpus`, which is made where it is missing: at most `most` cases a bucket. Raises UserError,
    CaseError, StoreError, and OSError."""
    is_campaign = is_there(directory / DATABASE)
    source = directory / CORPUS if is_campaign else directory
    there = buckets_in(source)
    if not is_campaign and not there:
        raise UserError(mismatch(directory, f"a campaign ({DATABASE}) or a corpus", "neither"))
    if source.resolve() == corpus.resolve():
        raise UserError(mismatch("--into", "another folder than that taken in", str(corpus)))
    corpus.mkdir(parents=True, exist_ok=True)
    with locked(corpus):
        adoption = _Adoption(corpus, most, on)
        for name, folder in sorted(there.items()):
            adoption.take(name, folder)
        if is_campaign:
            adoption.note_retried(directory)
            adoption.note_campaign(directory)
        return adoption.done


class _Adoption:
    """What is taken into `corpus`, and where each bucket of the source has gone."""

    def __init__(self, corpus: Path, most: int, on: date) -> None:
        self.done = Adopted()
        self._corpus, self._most, self._on = corpus, most, on
        self._folders = buckets_in(corpus)
        self._kept = kept_in([corpus], on) if any(map(case_folders, self._folders.values())) else []
        self._homes: dict[str, Path] = {}

    def take(self, name: str, folder: Path) -> None:
        """Takes in the bucket in `folder`, whose id is `name`."""
        bucket, cases = read_bucket(folder), [read_case(one) for one in case_folders(folder)]
        if not cases:
            return
        fresh = []
        for case in cases:
            home = self._explaining(case) or self._folders.get(name)
            if home is None:
                fresh.append(case)
            else:
                self._add(home, bucket, case, folder)
                self._homes.setdefault(name, home)
        if fresh:
            self._homes[name] = self._make(bucket, fresh, folder)
            self.done.new.append(name)
        else:
            self.done.known.append(id_of(self._homes[name]))
        if self._folders.get(name) == self._homes[name]:
            for event in history(folder):
                add_event(self._homes[name], event)

    def note_retried(self, directory: Path) -> None:
        """Notes what the cases did that the campaign has run again."""
        again = read_retried(directory)
        for name, one in sorted(again.buckets.items()) if again else ():
            home = self._folders.get(name)
            if again is None or home is None:
                continue
            cases = map(read_case, case_folders(home))
            recorded = (case.environment.get("torch") for case in cases)
            back = status(home, self._on).came_back(again.torch)
            noted = note_tried_in(home, again.torch, one.outcomes, next(recorded, None))
            if noted and back and not one.passes:
                self.done.came_back[one.stays] = back

    def note_campaign(self, directory: Path) -> None:
        """Notes in the histories of all buckets that the campaign met that it did."""
        with Store(directory, create=False) as store:
            begun, seen, buckets = store.campaign(), store.occurrences(), store.buckets()
        if begun is None:
            return
        torch, counts = begun.versions.get("torch", "unknown"), Counter[Path]()
        for bucket in buckets:
            label = known_as(bucket.known_issue)
            home = self._homes.get(bucket.id) or self._folders.get(bucket.id)
            home = home or (self._folders.get(label) if label else None)
            if home is not None and seen[bucket.id]:
                counts[home] += seen[bucket.id]
        for home, failures in sorted(counts.items()):
            back = status(home, self._on).came_back(torch)
            name = directory.resolve().name[:300]
            said = Seen(campaign=name, seed=begun.seed, torch=torch[:300], failures=failures)
            if note_seen(home, said) and back:
                self.done.came_back[id_of(home)] = back

    def _explaining(self, case: Case) -> Path | None:
        """The folder of the bucket that a case belongs to, if there is one."""
        found, traits = signature(case.failure, case.program), features(case.program)
        buckets = [one.bucket for one in self._kept if may_explain(one.bucket, traits)]
        bucket = merge_related(found, case.failure, traits, buckets)
        return next((one.folder for one in self._kept if one.bucket is bucket), None)

    def _add(self, home: Path, bucket: Bucket, case: Case, source: Path) -> None:
        """Adds a case to the bucket in the folder `home`, unless that has it, or enough. What is
        known of the bucket is written first: it may say more than its cases do."""
        there = case_folders(home)
        if any(one.name == case.id for one in there):
            return
        if len(there) >= self._most:
            self.done.left_out += 1
            return
        mine = joined(read_bucket(home), case.failure, features(case.program))
        tried = {**mine.tried, **_tried(bucket, [case])}
        mine = replace(mine, tried=tried)
        write_bucket(self._corpus, mine)
        make_folder_atomically(home / case.id, _files(case, source))
        self.done.cases += 1
        self._learn(home)

    def _make(self, bucket: Bucket, cases: Sequence[Case], source: Path) -> Path:
        """A bucket that the corpus did not have, with its first cases: all or nothing."""
        some = cases[: self._most]
        mine = replace(bucket, tried=_tried(bucket, some), known_issue=_record(bucket))
        folder = self._corpus / mine.folder
        files = {BUCKET: dump_yaml(bucket_to_data(mine))}
        for case in some:
            files |= {f"{case.id}/{name}": text for name, text in _files(case, source).items()}
        make_folder_atomically(folder, files)
        self.done.cases += len(some)
        self.done.left_out += len(cases) - len(some)
        self._folders[mine.id] = folder
        self._learn(folder)
        return folder

    def _learn(self, folder: Path) -> None:
        """Takes note of what is in a bucket's folder now."""
        latest: list[Kept] = kept_in([folder], self._on)
        self._kept = [one for one in self._kept if one.folder != folder] + latest


def _files(case: Case, source: Path) -> dict[str, str]:
    return case_files(case) | confirmation_files(source / case.id)


def _tried(bucket: Bucket, cases: Sequence[Case]) -> dict[str, Tried]:
    return {one.id: bucket.tried[one.id] for one in cases if one.id in bucket.tried}


def _record(bucket: Bucket) -> str | None:
    """The id of the known issue that labels a bucket; what a campaign knew of other corpora is said
    there."""
    return None if known_as(bucket.known_issue) else bucket.known_issue
