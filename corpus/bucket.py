"""Buckets: failures taken to have one cause.

Equal strong keys with a stack in them are one cause. A key without a stack (wrong numbers, say)
is shared by many causes, so there a bucket also has a *trigger*, the features of its minimized
program: a failure belongs to it when the trigger is part of the failing program's features, that
is, when the program has everything that is known to be enough.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from attnfuzz.corpus.models import Count, Hex, Line, Model, Slug, Text, Texts, read_as, validated
from attnfuzz.corpus.signature import Signature, is_of_memory, output_class
from attnfuzz.generators.model.outcome import WRITTEN, Failure, FailureKind, Layer

NUMBERS = ("dq", "dk", "dv")

_CHECKED = ConfigDict(extra="forbid", strict=False)
"""Of what is read from files; not strict, since a mapping becomes a dataclass."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """How often a script was run in a clean process, and failed there as it should."""

    __pydantic_config__ = _CHECKED
    runs: Count
    reproduced: Count


class _Notes(Model):
    """How a file has `Bucket.tried`."""

    repro: Annotated[dict[Hex, Tried], Field(max_length=1000)] = {}


_Names = Annotated[frozenset[str], read_as(Texts, frozenset)]
_VALUE = attrgetter("value")


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One cause. `id` is the same whenever and wherever the same cause is found first by the same
    program; `slug` is for folder names. `outputs` are the outputs that were wrong in any of its
    failures. `known_issue` is the id of the record that labels it. `tried` says of the scripts of
    its programs, by the program's id, how they did by themselves.

    `trigger` is what all minimized programs of the bucket have, `sorts` the sorts of things that
    the first of them has (see `coarse`): once a second has shown that another mask does as well, a
    program needs some mask, not that one.

    `bucket.yaml` and the database have these fields in this order, but `tried` as `notes.repro`.
    """

    __pydantic_config__ = _CHECKED
    id: Annotated[Hex, Field(max_length=16)]
    slug: Slug
    title: Line
    kind: Annotated[str, read_as(FailureKind, _VALUE)]
    layer: Annotated[str, read_as(Layer, _VALUE)] | None
    strong: Text
    needs_trigger: Annotated[bool, Field(strict=True)]
    trigger: _Names
    sorts: _Names
    outputs: _Names
    aliases: Annotated[tuple[str, ...], read_as(Texts, tuple)]
    known_issue: Text | None
    tried: Annotated[
        Mapping[str, Tried], read_as(_Notes, attrgetter("repro")), Field(alias="notes")
    ] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The bucket's folder in a corpus, "<id>-<slug>"."""
        return f"{self.id}-{self.slug}"


def new_bucket(
    signature: Signature,
    failure: Failure,
    features: frozenset[str],
    *,
    known_issue: str | None = None,
    outputs: Iterable[str] = (),
    taken: Iterable[str] = (),
) -> Bucket:
    """The bucket of a minimized failure. `features` are its minimized program's; `outputs` those
    wrong in the failure before it was minimized, besides those wrong in `failure` itself; `taken`
    the ids that other causes have: a program may give wrong `dq` by one and wrong `dv` by another.
    """
    features = telling(frozenset(features), failure)
    trigger = features if signature.needs_trigger else frozenset()
    wrong = wrong_outputs(failure) | frozenset(outputs)
    name = _digest(signature.strong, *sorted(trigger))
    return Bucket(
        id=_digest(name, *sorted(wrong)) if name in taken else name,
        slug=_slug(failure.kind.value, signature.title),
        strong=signature.strong,
        title=signature.title,
        kind=failure.kind.value,
        layer=failure.layer.value if failure.layer else None,
        trigger=features,
        sorts=coarse(features),
        needs_trigger=signature.needs_trigger,
        outputs=wrong,
        aliases=signature.aliases,
        known_issue=known_issue,
    )


_READING = re.compile(
    r"step\.(?:attend|attend_written|product|einsum|mask_scores|position_mask|softmax)(?:\..*)?"
)


def telling(features: frozenset[str], failure: Failure) -> frozenset[str]:
    """`features`, the program's of a `failure`, without those that say nothing of its cause: a
    cache is written before attention, however it is spelled, reads from it; what dropout takes away
    is counted, for which there have to be enough elements, of whichever extents."""
    wrong = wrong_outputs(failure)
    if wrong & WRITTEN:
        return frozenset(name for name in features if not _READING.fullmatch(name))
    if wrong == {"excess"}:
        return frozenset(name for name in features if not name.startswith("shape."))
    return features


def assign(
    signature: Signature,
    failure: Failure,
    features: frozenset[str],
    buckets: Iterable[Bucket],
) -> Bucket | None:
    """The bucket that `failure` belongs to, of those in `buckets`; None for a cause not seen yet.

    Where several would do, the one with the largest trigger: it says most about why.
    """
    candidates = [
        bucket
        for bucket in buckets
        if bucket.strong == signature.strong
        and (not _by_trigger(signature, bucket) or _explains(bucket, failure, features))
    ]
    return max(candidates, key=lambda bucket: _preference(signature, bucket), default=None)


def _by_trigger(signature: Signature, bucket: Bucket) -> bool:
    """Whether the key alone does not tell that a failure is the bucket's: many causes share such
    keys, or the bucket was split off another."""
    return signature.needs_trigger or bucket.needs_trigger


def _preference(signature: Signature, bucket: Bucket) -> tuple[bool, int, str]:
    return _by_trigger(signature, bucket), len(bucket.trigger), bucket.id


def merge_related(
    signature: Signature,
    failure: Failure,
    features: frozenset[str],
    buckets: Iterable[Bucket],
    outputs: frozenset[str] = frozenset(),
) -> Bucket | None:
    """The bucket of a failure that has been minimized, `features` being its minimized program's,
    and `outputs` those that were wrong before: what is wrong with the dtype or the strides of one
    gradient mostly is with all, of which a minimized program has one.

    As `assign`; besides, two minimized programs of one key that differ only in the example they
    settled on (which mask, which odd length, which of q and k) are one cause: neither can be made
    simpler, and both need the same sorts of things. So are two crashes that corrupted memory
    explains, of which one has no stack.
    """
    buckets = list(buckets)
    found = assign(signature, failure, features, buckets)
    if found is not None:
        return found
    features = telling(features, failure)
    for bucket in sorted(buckets, key=lambda bucket: bucket.id):
        if bucket.sorts == coarse(features) and (
            _is_the_same_but_for_a_stack(bucket, signature, failure)
            or (
                signature.needs_trigger
                and bucket.strong == signature.strong
                and (outputs_agree(bucket, failure) or _metadata_agrees(bucket, failure, outputs))
            )
        ):
            return bucket
    return None


def _is_the_same_but_for_a_stack(bucket: Bucket, signature: Signature, failure: Failure) -> bool:
    """Whether two crashes differ by the stack alone that one of them has (see
    `signature.key_without_stack`)."""
    one_has_it = bucket.needs_trigger != signature.needs_trigger
    return one_has_it and is_of_memory(failure) and bucket.aliases == signature.aliases


def joined(bucket: Bucket, failure: Failure, features: frozenset[str] | None = None) -> Bucket:
    """`bucket` with what `failure`, one of its own, adds to what is known of it. `features` are
    given when the failure has been minimized: what its program lacks is not part of the trigger."""
    outputs = bucket.outputs | wrong_outputs(failure)
    if features is None:
        return replace(bucket, outputs=outputs)
    sorts = bucket.sorts & coarse(features)
    return replace(bucket, outputs=outputs, trigger=bucket.trigger & features, sorts=sorts)


def related(bucket: Bucket, buckets: Iterable[Bucket]) -> list[Bucket]:
    """Other buckets that share the strong key or an alias: perhaps the same cause."""
    mine = {bucket.strong, *bucket.aliases}
    return [
        other
        for other in sorted(buckets, key=lambda other: other.id)
        if other.id != bucket.id and mine & {other.strong, *other.aliases}
    ]


def wrong_outputs(failure: Failure) -> frozenset[str]:
    """The outputs that `failure` is about: caches alone where one is wrong, and then `out` alone,
    since the rest follows."""
    names = frozenset(diff.output for diff in failure.diffs)
    return names & WRITTEN or names & {"out"} or names


def coarse(features: frozenset[str]) -> frozenset[str]:
    """The sorts of things that `features` are: "mask", "shape.kv_len", "layout", without which
    mask, which length, which of q, k and v, which activation, how many layers a stack has, or how
    attention by hand is spelled. Other choices are kept as they are."""
    return frozenset(name for name in map(_sort, features) if name)


# What a feature's sort is: the first pattern that matches says which part of it is kept.
_SORTS = tuple(
    (re.compile(pattern), kept)
    for pattern, kept in (
        (r"mask\.on\.(b|h)", "mask.on"),
        (r"mask\b.*", "mask"),
        (r"score\b.*", "score"),
        (r"(int|table)\..*", "table"),
        (r"(layout|dtype|values)\..*", r"\1"),
        (r"packed\..*", "layout"),
        (r"shape\.(q_len|kv_len|q!=kv).*", "shape.length"),
        (r"shape\.(gqa|heads|batch).*", "shape.heads"),
        (r"shape\.(v_)?head_dim.*", "shape.head_dim"),
        (r"calls\b.*", "calls"),
        (r"kernel\.handwritten\..*", "kernel.handwritten.spelling"),
        (r"(kernel\.\w+\.(?:activation|num_layers))\..*", r"\1"),
        (r"training\.d[qkv]", ""),
        (r"surround\.checkpoint.*", "surround.checkpoint"),
        (r"surround\.epilogue.*", "surround.epilogue"),
        (r"(kernel\.\w+\.scale)\.(0|negative)", r"\1.le0"),
        (r"block_mask\.block_size.*", "block_mask.block_size"),
        (r"block_mask\.rebuilt.*", "block_mask.rebuilt"),
        (r"compile\.(eager|aot_eager|inductor)", ""),  # the layer to blame is in the key
        (r"compile\.mode.*", "compile.mode"),
        (r"seed|dirty_memory", ""),
    )
)


@cache
def _sort(feature: str) -> str:
    for pattern, kept in _SORTS:
        found = pattern.fullmatch(feature)
        if found:
            return found.expand(kept)
    return feature


def may_explain(known: Bucket, features: frozenset[str]) -> bool:
    """Whether a minimized failure of a program with those features may be of `known`, a bucket that
    was there before: where the key does not tell, their programs share examples."""
    return not known.needs_trigger or shares_examples(known, features)


def shares_examples(bucket: Bucket, features: frozenset[str]) -> bool:
    """Whether a program with those features has, of each sort of things that `bucket` needs, one
    that the bucket's programs have too: a node of their score_mods, a tensor laid out as theirs.
    Without, another cause may need the same sorts. Where the bucket's programs have no example in
    common, any other will do, and any activation or spelling of the kernel's."""
    needed: dict[str, set[str]] = {}
    for name in bucket.trigger:
        sort = _sort(name)
        if sort not in ("", name) and not sort.startswith("kernel."):
            needed.setdefault(sort, set()).add(name)
    has = features | laid_out(features)
    return all(names & has for names in needed.values())


def laid_out(features: frozenset[str]) -> frozenset[str]:
    """How tensors are laid out in memory, as "layout.q.pad": views of one buffer too, which have
    strides and a start of their own."""
    laid = {name for name in features if name.startswith("layout.")}
    if any(name.startswith("packed.") for name in features):
        laid |= {f"layout.{x}.{how}" for x in "qkv" for how in ("order", "pad", "start")}
    return frozenset(laid)


def _explains(bucket: Bucket, failure: Failure, features: frozenset[str]) -> bool:
    # Which gradients a program asks for is no cause: which of them are wrong is compared instead.
    gradients = {f"training.{name}" for name in NUMBERS}
    layer = {f"compile.{name}" for name in ("eager", "aot_eager", "inductor")}
    return (
        outputs_agree(bucket, failure)
        and bucket.trigger - gradients - layer <= features
        and bucket.sorts <= coarse(features)
    )


def outputs_agree(bucket: Bucket, failure: Failure) -> bool:
    """Whether `failure` may be of `bucket` by the outputs that are wrong: gradients have causes of
    their own."""
    wrong = wrong_outputs(failure)
    return not wrong or not bucket.outputs or bool(wrong & bucket.outputs) or not _gradients(wrong)


def _metadata_agrees(bucket: Bucket, failure: Failure, outputs: frozenset[str]) -> bool:
    return failure.kind == FailureKind.METADATA_MISMATCH and bool(outputs & bucket.outputs)


def _gradients(outputs: frozenset[str]) -> bool:
    return any(output_class(name) == "grad" for name in outputs)


def bucket_to_data(bucket: Bucket) -> dict[str, Any]:
    """JSON-able data in a fixed order; `bucket_from_data` gives back an equal bucket."""
    data = {name: _plain(value) for name, value in asdict(bucket).items()}
    tried = data.pop("tried")
    return data | ({"notes": {"repro": tried}} if tried else {})


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def bucket_from_data(data: Any, where: str = "<bucket>") -> Bucket:
    """The bucket of that data. Raises ProgramError, one sentence."""
    return validated(_BUCKET, data, where)


_BUCKET = TypeAdapter(Bucket)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def _slug(kind: str, title: str) -> str:
    words: Sequence[str] = re.findall(r"[a-z0-9]+", re.sub(r"<[A-Z]+>", "", title).lower())
    text = kind.replace("_", "-")
    for word in words:
        if len(text) + 1 + len(word) > 50:
            break
        text += f"-{word}"
    return text
