"""Corpora of a bucket or some, made of programs that nobody runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnfuzz.corpus.bucket import Bucket, new_bucket
from attnfuzz.corpus.case import Case, write_bucket, write_case
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import Program, Shape
from tests.support.fake_pool import raised, wrong

PROGRAM = Program(kernel=Handwritten(), shape=Shape(q_len=16, kv_len=48))


def write_one(corpus: Path, *seeds: int, message: str = "") -> Bucket:
    """Writes a bucket with a case for each seed, which is all that tells them apart. Its failure is
    a wrong result, or an exception with that message."""
    failure = (raised(message) if message else wrong("out")).failure
    assert failure is not None
    bucket = new_bucket(signature(failure, PROGRAM), failure, features(PROGRAM))
    write_bucket(corpus, bucket)
    for seed in seeds:
        case = Case(program=replace(PROGRAM, seed=seed), failure=failure, repro=f"# {seed}\n")
        write_case(corpus, bucket, case)
    return bucket
