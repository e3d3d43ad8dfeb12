"""The buckets of a campaign: its own, and those that are known (see `known_buckets`)."""

from __future__ import annotations

from pathlib import Path

from attnfuzz.corpus.bucket import (
    Bucket,
    assign,
    coarse,
    joined,
    laid_out,
    may_explain,
    outputs_agree,
    shares_examples,
)
from attnfuzz.corpus.signature import Signature, signature
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.known_buckets import Known, by_key, cause_of
from attnfuzz.fuzz.campaign.save_case import keep_bucket
from attnfuzz.fuzz.reduce.judges import as_wrong_numbers
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Failure
from attnfuzz.generators.model.program import Program


class BucketIndex:
    """`buckets` are those that the campaign in `directory` has recorded in `store`, labelled as far
    as they are `known`, and all that is known. What is known stays as it is."""

    def __init__(self, store: Store, directory: Path, known: Known) -> None:
        recorded = store.buckets()
        self.known = known
        self.buckets = known.with_own(recorded)
        self._directory = directory
        self._met = {bucket.id for bucket in recorded}
        for bucket in self.buckets:
            if bucket.id in self._met and bucket not in recorded:
                store.save_bucket(bucket)
                keep_bucket(directory, bucket)

    def get(self, name: str) -> Bucket:
        """The bucket with that id."""
        return next(bucket for bucket in self.buckets if bucket.id == name)

    def settled_keys(self) -> frozenset[str]:
        """Strong keys of which nothing new is to be learned. One of what is known is among them
        once it was met: the first failure is recorded, so that there is something to show."""
        return frozenset(bucket.strong for bucket in self.buckets if bucket.id in self._met)

    def met(self) -> frozenset[str]:
        """Ids of the buckets that the campaign has met, and of those as which they are known."""
        causes = (cause_of(one) for one in self.buckets if one.id in self._met)
        return frozenset((*self._met, *causes))

    def by_key(self) -> dict[str, list[Bucket]]:
        """All buckets by their strong keys."""
        return by_key(self.buckets)

    def kinds(self) -> set[str]:
        """The kinds of the campaign's own buckets."""
        return {bucket.kind for bucket in self.buckets if bucket not in self.known}

    def explaining(self, target: str) -> list[Bucket]:
        """The buckets that may explain a failure on `target` before it is minimized."""
        return self.known.explaining(self.buckets, target)

    def assign(self, failure: Failure, program: Program, target: str) -> Bucket | None:
        """The bucket that explains a failure on `target`, which is not minimized."""
        found = signature(failure, program)
        return assign(found, failure, features(program), self.explaining(target))

    def suspects(self, failure: Failure, program: Program, target: str) -> list[Bucket]:
        """The buckets that may explain a failure without a stack before it is minimized: of its
        key, with the same outputs wrong, and the program has the sorts of things that they need,
        and lays some tensor out as their programs do; of what is known it has an example of each
        sort. Or of other numbers of its kernel and layer (what is wrong may be NaN as well, or of
        another shape), and it has their whole trigger. What a system's kernel does wrong may be
        known of torch's kernel underneath. Those first whose whole trigger it has, then those that
        need most."""
        if not signature(failure, program).needs_trigger:
            return []
        programs = (program, *plugin_of(program).underneath(program))
        shown = filter(None, (failure, as_wrong_numbers(program, failure)))
        told = [(signature(how, one), features(one)) for how in shown for one in programs]

        def has_all_of(one: Bucket) -> bool:
            return any(one.trigger <= has for _, has in told)

        there = [
            one
            for one in self.explaining(target)
            if any(self._may_be_of(one, *each) for each in told) and outputs_agree(one, failure)
        ]
        return sorted(there, key=lambda one: (not has_all_of(one), -len(one.trigger), one.id))

    def _may_be_of(self, bucket: Bucket, found: Signature, has: frozenset[str]) -> bool:
        """Whether a failure with the signature `found`, of a program with the features `has`, may
        be of the bucket: see `suspects`."""
        if bucket.strong != found.strong:
            alike = bool(bucket.trigger) and bucket.trigger <= has
            return alike and any(alias in bucket.aliases for alias in found.aliases[:1])
        if bucket in self.known and not shares_examples(bucket, has):
            return False
        return bucket.sorts <= coarse(has) and _ways(bucket.trigger) <= _ways(has)

    def related(self, features: frozenset[str]) -> list[Bucket]:
        """The buckets that a minimized failure may be of, by the features of its program: all but
        those known ones that have other examples, where the key does not tell."""
        return [one for one in self.buckets if one not in self.known or may_explain(one, features)]

    def joined(
        self, bucket: Bucket, failure: Failure, features: frozenset[str] | None = None
    ) -> Bucket:
        """`bucket` with what `failure` adds, as `corpus.bucket.joined` has it."""
        return bucket if bucket in self.known else joined(bucket, failure, features)

    def put(self, bucket: Bucket) -> None:
        """Takes in a bucket that a failure was recorded of, or what is known of it now."""
        self._met.add(bucket.id)
        if bucket in self.buckets:
            return
        keep_bucket(self._directory, bucket)
        self.buckets = [bucket if one.id == bucket.id else one for one in self.buckets]
        if all(one.id != bucket.id for one in self.buckets):
            self.buckets.append(bucket)

    def withdraw(self, name: str) -> None:
        """Forgets the bucket with that id."""
        self.buckets = [one for one in self.buckets if one.id != name]


def _ways(features: frozenset[str]) -> frozenset[str]:
    """In which ways tensors are laid out, whichever they are: expanded, in another order, padded.
    All of that is one sort, but expanded memory fails where a stride of another kind does not."""
    return frozenset(name.rpartition(".")[2] for name in laid_out(features))
