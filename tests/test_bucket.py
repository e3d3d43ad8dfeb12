"""Buckets: about one per cause; neither glue unrelated bugs nor file one many times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnfuzz.corpus.bucket import (
    Bucket,
    Tried,
    assign,
    bucket_from_data,
    bucket_to_data,
    coarse,
    joined,
    merge_related,
    new_bucket,
    related,
)
from attnfuzz.corpus.signature import Signature, signature
from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.steps.attention import Attend, Product, Softmax
from attnfuzz.generators.kernels.graph.steps.state import PositionMask, Store, StoreInPages
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.specs import Flex, Graph, Handwritten, Sdpa
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal, Natten, Not, SlidingWindow
from attnfuzz.generators.model.outcome import (
    Diff,
    Failure,
    FailureKind,
    Frame,
    Layer,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Layout,
    Program,
    Shape,
    Surround,
    Training,
)


def wrong(*outputs: str) -> Failure:
    diffs = tuple(Diff(output=name, what="value", expected="1", actual="2") for name in outputs)
    return Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.EAGER, diffs=diffs)


def raised(message: str) -> Failure:
    frame = Frame(file="torch/_inductor/scheduler.py", function="fuse_nodes", line=1)
    told = Raised(type="KeyError", message=message, frames=(frame,))
    return Failure(
        kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=Layer.INDUCTOR, raised=told
    )


def named(failure: Failure, program: Program) -> tuple[Signature, Failure, frozenset[str]]:
    return signature(failure, program), failure, features(program)


def bucket_of(failure: Failure, program: Program) -> Bucket:
    return new_bucket(*named(failure, program))


TRANSPOSED = Input(layout=Layout(order=(0, 2, 1, 3)))


def test_a_program_with_all_that_triggers_belongs_to_the_bucket() -> None:
    bucket = bucket_of(wrong("out"), Program(k=TRANSPOSED))
    bigger = Program(k=TRANSPOSED, mask=Causal(), shape=Shape(q_len=33), training=Training())
    assert assign(*named(wrong("out", "dq"), bigger), [bucket]) is bucket


@pytest.mark.parametrize(
    ("kind", "one"), [(FailureKind.METADATA_MISMATCH, True), (FailureKind.WRONG_RESULT, False)]
)
def test_a_wrong_dtype_of_all_gradients_is_one_cause(kind: FailureKind, one: bool) -> None:
    """Minimized programs have one gradient each; which one is no cause where it is no number."""
    of_v, of_q = (
        named(replace(wrong(f"d{name}"), kind=kind), Program(training=Training(wrt=(name,))))
        for name in ("v", "q")
    )
    bucket = new_bucket(*of_v)
    before = frozenset({"dq", "dk", "dv"})
    assert merge_related(*of_q, [bucket]) is None
    assert (merge_related(*of_q, [bucket], before) is bucket) is one


def test_a_program_without_what_triggers_is_another_cause() -> None:
    bucket = bucket_of(wrong("out"), Program(k=TRANSPOSED))
    assert assign(*named(wrong("out"), Program(mask=Causal())), [bucket]) is None
    assert merge_related(*named(wrong("out"), Program(mask=Causal())), [bucket]) is None


def test_what_is_wrong_and_where_must_be_the_same() -> None:
    bucket = bucket_of(wrong("out"), Program(k=TRANSPOSED))
    assert assign(*named(wrong("dq"), Program(k=TRANSPOSED)), [bucket]) is None
    assert assign(*named(wrong("out"), Program(k=TRANSPOSED, kernel=Flex())), [bucket]) is None
    inductor = replace(wrong("out"), layer=Layer.INDUCTOR)
    assert assign(*named(inductor, Program(k=TRANSPOSED, compile=Compile())), [bucket]) is None


def test_the_bucket_that_says_most_is_chosen() -> None:
    small = bucket_of(wrong("out"), Program(mask=Causal()))
    large = bucket_of(wrong("out"), Program(mask=Causal(), k=TRANSPOSED))
    both = Program(mask=Causal(), k=TRANSPOSED, v=TRANSPOSED)
    assert assign(*named(wrong("out"), both), [small, large]) is large
    assert assign(*named(wrong("out"), both), [large, small]) is large
    assert assign(*named(wrong("out"), Program(mask=Causal())), [small, large]) is small


def test_an_exception_with_a_stack_needs_no_trigger() -> None:
    bucket = bucket_of(raised("no 3"), Program(mask=Causal(), compile=Compile()))
    other = Program(kernel=Flex(), compile=Compile(), shape=Shape(q_len=7))
    assert assign(*named(raised("no 12"), other), [bucket]) is bucket
    assert assign(*named(raised("no such buffer"), other), [bucket]) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Program(mask=Causal()), Program(mask=SlidingWindow(window=3))),
        (Program(mask=Causal()), Program(mask=Not(inner=Natten()))),
        (Program(shape=Shape(q_len=1)), Program(shape=Shape(kv_len=17))),
        (Program(k=TRANSPOSED), Program(v=Input(layout=Layout(start=(0, 0, 1, 0))))),
        (Program(q=Input(dtype="bfloat16")), Program(q=Input(dtype="float16"))),
        (
            Program(kernel=Handwritten(product="einsum")),
            Program(kernel=Handwritten(scaling="query_mul")),
        ),
    ],
)
def test_minimized_programs_that_settled_on_other_examples_are_one_cause(
    one: Program, other: Program
) -> None:
    bucket = bucket_of(wrong("out"), one)
    assert assign(*named(wrong("out"), other), [bucket]) is None
    assert merge_related(*named(wrong("out"), other), [bucket]) is bucket


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Program(mask=Causal()), Program(shape=Shape(q_len=1))),
        (Program(kernel=Sdpa(scale=0.0)), Program(kernel=Sdpa(backend="math"))),
        (Program(k=TRANSPOSED), Program(k=Input(values="huge"))),
        (Program(compile=Compile(dynamic=True)), Program(compile=Compile(fullgraph=False))),
        (Program(autocast="bfloat16"), Program(surround=Surround(checkpoint="full"))),
        (Program(calls=(Call(batch=1, q_len=3, kv_len=3),)), Program(mask=Causal())),
        (Program(kernel=Handwritten(product="einsum")), Program(kernel=Handwritten())),
    ],
)
def test_minimized_programs_that_need_other_things_are_two_causes(
    one: Program, other: Program
) -> None:
    assert merge_related(*named(wrong("out"), other), [bucket_of(wrong("out"), one)]) is None


def crash(signal: str, *native: str) -> Failure:
    frames = tuple(Frame(file="libtorch_cpu.so", function=name) for name in native)
    told = Raised(type=f"Signal {signal}", message=f"killed by {signal}", frames=frames)
    return Failure(
        kind=FailureKind.CRASH, phase=Phase.EAGER, layer=Layer.EAGER, signal=signal, raised=told
    )


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        (crash("SIGSEGV", "f"), crash("SIGSEGV"), True),
        (crash("SIGSEGV"), crash("SIGBUS", "f"), True),
        (crash("SIGSEGV", "f"), crash("SIGSEGV", "g"), False),
        (crash("SIGFPE", "f"), crash("SIGSEGV"), False),
    ],
)
def test_a_crash_that_has_lost_its_stack_is_of_the_one_that_has_it(
    first: Failure, second: Failure, one: bool
) -> None:
    program = Program(mask=Causal())
    bucket = bucket_of(first, program)
    assert (merge_related(*named(second, program), [bucket]) == bucket) is one
    assert merge_related(*named(second, Program()), [bucket]) is None, "it needs other things"


def test_how_a_cache_is_read_says_nothing_of_how_it_is_written() -> None:
    """Attention by SDPA and by hand, of one cache; and two ways to write it."""

    def decoding(*steps: Step) -> Program:
        return Program(kernel=Graph(decode=Decode(tokens=2), steps=()).with_steps(steps))

    stored = Store(of="k", cache="cache_k", to="keys")
    mask = PositionMask(like="q", to="mask")
    fused = Attend(q="q", k="keys", v="keys", to="out", mask="mask")
    by_hand = (
        Product(left="q", right="keys", to="scores"),
        Softmax(of="scores", to="probs", dim=3),
        Product(left="probs", right="keys", to="out"),
    )
    first, other = decoding(stored, mask, fused), decoding(stored, mask, *by_hand)
    written = decoding(replace(stored, form="index_copy"), mask, fused)
    pages = StoreInPages(of="k", cache="cache_k", to="keys", form="index_copy")
    paged = Program(kernel=Graph(steps=(pages,), decode=Decode(slots="pages", cache="blhd")))
    for failure, one in ((wrong("cache_k", "out"), True), (wrong("out"), False)):
        bucket = bucket_of(failure, first)
        assert (merge_related(*named(failure, other), [bucket]) == bucket) is one
        bucket = bucket_of(failure, written)
        assert merge_related(*named(failure, first), [bucket]) is None
        assert features(written) - features(first) <= features(paged)


def test_which_extents_make_enough_elements_to_count_says_nothing() -> None:
    dropped = Program(kernel=Handwritten(dropout_p=0.5), shape=Shape(q_len=64, kv_len=64))
    other = replace(dropped, shape=Shape(batch=4, q_heads=8, kv_heads=8))
    for output, one in (("excess", True), ("out", False)):
        bucket = bucket_of(wrong(output), dropped)
        assert (merge_related(*named(wrong(output), other), [bucket]) == bucket) is one


def test_where_a_checkpoint_is_around_it_the_cause_is_the_same() -> None:
    inner = Frame(file="torch/nn/attention/flex_attention.py", function="flex_attention", line=1)
    around = Frame(file="torch/utils/checkpoint.py", function="checkpoint", line=2)
    told = Raised(type="ValueError", message="created for another", frames=(inner,))
    failure = Failure(
        kind=FailureKind.RUNTIME_ERROR, phase=Phase.EAGER, layer=Layer.EAGER, raised=told
    )
    within = replace(failure, raised=replace(told, frames=(around, inner)))
    program = Program(kernel=Flex())
    assert signature(within, program).strong == signature(failure, program).strong


def test_gradients_are_one_cause_when_any_is_wrong_in_both() -> None:
    only_q = Program(training=Training(wrt=("q",)), mask=Causal())
    only_k = Program(training=Training(wrt=("k",)), mask=Causal())
    found = new_bucket(*named(wrong("dq"), only_q), outputs=("dq", "dk"))
    assert assign(*named(wrong("dk"), only_k), [found]) is found
    assert assign(*named(wrong("dv"), Program(training=Training(), mask=Causal())), [found]) is None
    assert joined(found, wrong("dv", "dq")).outputs == {"dq", "dk", "dv"}


def test_one_program_may_have_two_causes_and_two_buckets() -> None:
    program = Program(training=Training(), mask=Causal())
    one = bucket_of(wrong("dq"), program)
    assert assign(*named(wrong("dv"), program), [one]) is None
    other = new_bucket(*named(wrong("dv"), program), taken=[one.id])
    assert other.id != one.id
    assert new_bucket(*named(wrong("dv"), program), taken=[other.id]).id == one.id


def test_a_bucket_that_was_found_to_need_less_explains_what_has_no_more() -> None:
    needs_both = bucket_of(wrong("out"), Program(mask=Causal(), k=TRANSPOSED))
    simpler = Program(mask=Causal())
    needs_one = joined(needs_both, wrong("out"), features(simpler))
    assert assign(*named(wrong("out"), simpler), [needs_one]) is needs_one
    other_mask = Program(mask=SlidingWindow(window=3))
    assert merge_related(*named(wrong("out"), other_mask), [needs_one]) is needs_one


def test_a_bucket_learns_that_another_example_does_as_well() -> None:
    bucket = bucket_of(wrong("out"), Program(mask=Causal(), k=TRANSPOSED))
    other = Program(mask=SlidingWindow(window=3), k=TRANSPOSED)
    third = Program(mask=Natten(), k=TRANSPOSED, shape=Shape(q_len=3))
    assert assign(*named(wrong("out"), third), [bucket]) is None
    learnt = joined(bucket, wrong("out"), features(other))
    assert learnt.id == bucket.id
    assert assign(*named(wrong("out"), third), [learnt]) is learnt
    assert assign(*named(wrong("out"), Program(k=TRANSPOSED)), [learnt]) is None
    assert assign(*named(wrong("out"), Program(mask=Natten())), [learnt]) is None


def test_one_fault_seen_in_many_programs_is_one_bucket() -> None:
    """What a campaign does with a fault that shows wherever keys are transposed."""
    seen = [
        Program(seed=1, k=TRANSPOSED, mask=Causal()),
        Program(seed=2, k=TRANSPOSED, shape=Shape(q_heads=4, kv_heads=4)),
        Program(seed=3, k=TRANSPOSED, training=Training(), compile=Compile(backend="aot_eager")),
        Program(seed=4, k=TRANSPOSED, v=TRANSPOSED),
    ]
    buckets: list[Bucket] = []
    for program in seen:
        if assign(*named(wrong("out"), program), buckets) is None:
            minimized = Program(k=TRANSPOSED)
            assert merge_related(*named(wrong("out"), minimized), buckets) is None
            buckets.append(bucket_of(wrong("out"), minimized))
    assert len(buckets) == 1


def test_kin_share_a_key_or_an_alias() -> None:
    one = bucket_of(wrong("out"), Program(mask=Causal()))
    same_key = bucket_of(wrong("out"), Program(k=TRANSPOSED))
    infinite = replace(wrong("out"), kind=FailureKind.NONFINITE)
    same_alias = bucket_of(infinite, Program())
    stranger = bucket_of(raised("no 3"), Program(kernel=Flex(), compile=Compile()))
    found = related(one, [one, same_key, same_alias, stranger])
    assert {bucket.id for bucket in found} == {same_key.id, same_alias.id}


def test_a_bucket_has_the_same_name_whenever_it_is_found() -> None:
    one, again = (bucket_of(wrong("out"), Program(seed=s, mask=Causal())) for s in (1, 1))
    assert one == again
    assert one.id != bucket_of(wrong("out"), Program(k=TRANSPOSED)).id
    assert one.folder == f"{one.id}-wrong-result-wrong-out-of-sdpa-attention"
    assert bucket_of(raised("x"), Program()).id == bucket_of(raised("x"), Program(k=TRANSPOSED)).id


def test_a_bucket_goes_to_data_and_back() -> None:
    bucket = bucket_of(wrong("dq", "dk"), Program(mask=Causal(), training=Training()))
    tried = {"abc": Tried(runs=3, reproduced=3)}
    noted = replace(bucket, known_issue="pytorch-1", tried=tried)
    assert bucket_from_data(bucket_to_data(noted)) == noted


def test_coarse_features_keep_the_kernel_and_drop_the_example() -> None:
    program = Program(
        kernel=Sdpa(backend="math"),
        mask=Causal(),
        training=Training(wrt=("q",)),
        shape=Shape(q_len=1),
        compile=Compile(backend="aot_eager"),
    )
    kept = coarse(features(program))
    assert "mask" in kept and "shape.length" in kept and "training" in kept
    assert "kernel.sdpa.backend.math" in kept
    assert not any(name.startswith(("training.d", "compile.aot", "shape.q")) for name in kept)
