"""Counterfactuals: a program without one thing that a bucket's programs need to fail.

A bucket's minimized program is 1-minimal: without any of the sorts of things that it has it does
not fail so. A program that fails alike, and no longer does without one of them, fails by that
bucket's cause; one that still does fails by another. That takes a run or two where minimizing the
program would take fifty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from attnfuzz.corpus.bucket import Bucket, coarse
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.shrink.candidates import candidates

MOST = 2
"""Counterfactuals that a failure is attributed by: one may take away two causes at once."""

ANYTHING = re.compile(r"compile|kernel\.\w+|training|draws|calls")
"""Sorts without which most failures are gone, whatever their cause."""

UNDERNEATH = re.compile(r"kernel\.\w+\.(module|implementation|backend)\.flex\w*")
"""Such sorts, too: a system's program without them is one of another of torch's kernels."""


def counterfactuals(bucket: Bucket, program: Program, most: int = MOST) -> list[Program]:
    """Programs that lack one sort of thing that `bucket` needs and `program` has, each changed as
    little as can be, those changed least first; at most `most`. None where all that the bucket
    needs is so common that being without it says nothing."""
    sorts = bucket.sorts & coarse(features(program))
    return _without_one(program, {one for one in sorts if not _says_nothing(one)})[:most]


def _says_nothing(sort: str) -> bool:
    return any(pattern.fullmatch(sort) for pattern in (ANYTHING, UNDERNEATH))


def _without_one(program: Program, sorts: Collection[str]) -> list[Program]:
    """`program` without one of `sorts`, each changed as little as can be, the least first."""
    has, wanted = features(program), sorted(sorts)
    best: dict[str, tuple[int, int, Program]] = {}
    for place, simpler in enumerate(candidates(program) if wanted else ()):
        left = features(simpler)
        changed, still = len(has ^ left), coarse(left)
        for sort in wanted:
            if sort not in still and (sort not in best or changed < best[sort][0]):
                best[sort] = (changed, place, simpler)
    found: list[Program] = []
    for _, _, simpler in sorted(best.values(), key=lambda one: one[:2]):
        if simpler not in found:
            found.append(simpler)
    return found


def steered(program: Program, known: Iterable[Bucket]) -> tuple[Program, tuple[str, ...]]:
    """`program` without what each of `known` needs to fail, wherever it has all of that, and the
    ids of those buckets. A program of which nothing can be taken away stays as it is. Of a system
    torch's kernel underneath is taken away last."""
    clear_of: list[str] = []
    has = features(program)
    for bucket in known:
        if holds(bucket, has):
            clear_of.append(bucket.id)
            flex = {sort for sort in bucket.sorts & coarse(has) if UNDERNEATH.fullmatch(sort)}
            clear = counterfactuals(bucket, program, 1) or _without_one(program, flex)
            program = next(iter(clear), program)
            has = features(program)
    return program, tuple(clear_of)


def holds(bucket: Bucket, has: frozenset[str]) -> bool:
    """Whether a program with those features has everything that is known to be enough for `bucket`
    to fail. Which gradients are asked for does not matter, nor what a lower layer does anyway."""
    return all(name in has for name in bucket.trigger if coarse(frozenset({name}))) and (
        bucket.sorts <= coarse(has)
    )
