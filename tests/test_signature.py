"""Signatures: recorded failures give the keys on record, and what does not matter changes none.

`ATTNFUZZ_UPDATE_GOLDEN=1` rewrites the keys in `golden/signatures`; review the difference.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfuzz.corpus.frames import significant_frames
from attnfuzz.corpus.signature import Signature, signature
from attnfuzz.corpus.title import TITLE_LENGTH, title
from attnfuzz.corpus.volatile import LONGEST, mask_volatile
from attnfuzz.generators.kernels.graph.decoding import CACHES
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.codec import (
    dump_yaml,
    load_program,
    load_yaml_safely,
    outcome_from_data,
    read_text,
)
from attnfuzz.generators.model.outcome import (
    WRITTEN,
    Diff,
    Failure,
    FailureKind,
    Frame,
    Layer,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Compile, Input, Program, Shape

GOLDEN = Path(__file__).parent / "golden" / "signatures"
CASES = sorted(folder.name for folder in GOLDEN.iterdir())
ONE_CAUSE = [{"cpp_bool_score_mod", "cpp_bool_score_mod_bfloat16"}]


FLEX = Program(kernel=Flex())


def recorded(name: str) -> tuple[Failure, Program]:
    where = GOLDEN / name / "failure.yaml"
    data = {"status": "failed", "failure": load_yaml_safely(read_text(where), str(where))}
    failure = outcome_from_data(data, str(where)).failure
    assert failure is not None
    return failure, load_program(read_text(GOLDEN / name / "program.yaml"), name)


def test_tiles_that_do_not_fit_are_told_by_the_graph_that_they_were_chosen_for() -> None:
    message = "out of resource: shared memory, Required: 114688, Hardware limit: 101376. Reducing"
    raised = Raised(type="triton.runtime.errors.OutOfResources", message=message)
    forward = Failure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.COMPILE, raised=raised)
    backward = replace(forward, evidence={"graph": "backward"})
    larger = replace(backward, raised=replace(raised, message=message.replace("114688", "262144")))
    assert signature(forward, FLEX).strong != signature(backward, FLEX).strong
    assert signature(backward, FLEX) == signature(larger, FLEX)
    title = "flex attention's backward takes more shared memory than the card has"
    assert signature(backward, FLEX).title == title
    unpipelined = f"No valid triton configs. OutOfResources: {message}"
    reduced = replace(raised, type="RuntimeError", message=unpipelined)
    assert signature(replace(backward, raised=reduced), FLEX) == signature(backward, FLEX)


def test_what_cannot_be_traced_is_one_cause_in_a_region_too() -> None:
    plain, program = recorded("block_mask_compiled_inside")
    assert plain.raised is not None
    said, _, hints = plain.raised.message.partition("\n")
    inside = replace(
        plain.raised,
        type="torch._dynamo.exc.UncapturedHigherOrderOpError",
        chain=("torch._dynamo.exc.UncapturedHigherOrderOpError",),
        message="This higher order operator doesn't work unless it is captured completely with "
        f"torch.compile. Got graph break/error:\n\n{said}\n  Higher Order Operator: "
        f"torch.ops.higher_order.invoke_subgraph\n{hints}",
    )
    assert signature(replace(plain, raised=inside), program) == signature(plain, program)


def test_eager_torch_is_one_whether_the_inputs_call_it_or_attention() -> None:
    frame = Frame(file="torch/nn/attention/flex_attention.py", function="create_block_mask", line=9)
    raised = Raised(type="AssertionError", message="requires a mask_mod", frames=(frame,))
    outside = Failure(kind=FailureKind.RUNTIME_ERROR, phase=Phase.BUILD, raised=raised)
    inside = replace(outside, phase=Phase.EAGER, layer=Layer.EAGER)
    assert signature(outside, FLEX).strong == signature(inside, FLEX).strong
    traced = replace(outside, phase=Phase.COMPILE, layer=Layer.DYNAMO)
    assert signature(outside, FLEX).strong != signature(traced, FLEX).strong


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_failure_gives_the_key_on_record(name: str) -> None:
    found = signature(*recorded(name))
    told = {
        "strong": found.strong,
        "title": found.title,
        "needs_trigger": found.needs_trigger,
        "aliases": list(found.aliases),
    }
    where = GOLDEN / name / "expected.yaml"
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN") == "1":
        where.write_text(dump_yaml(told), encoding="utf-8")
    assert told == load_yaml_safely(read_text(where), str(where))


def test_recorded_failures_of_different_causes_have_different_keys() -> None:
    assert len(CASES) >= 20
    causes: dict[str, set[str]] = {}
    for name in CASES:
        causes.setdefault(signature(*recorded(name)).strong, set()).add(name)
    assert [names for names in causes.values() if len(names) > 1] == ONE_CAUSE


@pytest.mark.parametrize("name", CASES)
def test_a_title_is_one_short_line_and_a_key_is_a_name(name: str) -> None:
    found = signature(*recorded(name))
    assert 0 < len(found.title) <= TITLE_LENGTH and found.title.isprintable()
    assert found.strong.replace("_", "").replace("-", "").isalnum()
    assert found.strong not in found.aliases and len(set(found.aliases)) == len(found.aliases) > 0


def raised(message: str, *frames: tuple[str, str], name: str = "RuntimeError") -> Failure:
    stack = tuple(Frame(file=file, function=function, line=1) for file, function in frames)
    return Failure(
        kind=FailureKind.COMPILE_ERROR,
        phase=Phase.COMPILE,
        layer=Layer.INDUCTOR,
        raised=Raised(type=name, message=message, chain=(name,), frames=stack),
    )


LOWERING = ("torch/_inductor/kernel/flex/flex_cpu.py", "lower_cpu")
SCHEDULER = ("torch/_inductor/scheduler.py", "fuse_nodes")
COMPILED = Program(kernel=Flex(), compile=Compile())


def strong(failure: Failure, program: Program = COMPILED) -> str:
    return signature(failure, program).strong


HOP = "\n  Higher Order Operator: torch.utils.checkpoint.checkpoint"
FAKE = "RuntimeError when making fake tensor call\n  Explanation: it failed:"
SAME = [
    (
        "call_id with args (X(),)\n  Explanation: no",
        f"call_id with args (X(),){HOP}\n  Explanation: no",
    ),
    (
        "'item' does not belong to this Graph\ngraph():\n    %l_q_ : [num_users=1] = placeholder",
        "'item' does not belong to this Graph\ngraph():\n    %s0 : torch.SymInt = placeholder",
    ),
    ("size mismatch, got 3 and 17", "size mismatch, got 128 and 4"),
    ("expected torch.float32 but got torch.bfloat16", "expected torch.float16 but got torch.int64"),
    ("shape torch.Size([2, 4, 8]) and (4, 8, 1)", "shape torch.Size([1]) and (s0, 2, 16, 1)"),
    ("name 's27' is not defined", "name 'ps0' is not defined"),
    ("s0**2*s1 (SymInt) is not tracked", "s3*s4**2 (SymInt) is not tracked"),
    ("Pending unbacked symbols {u1, u0}", "Pending unbacked symbols {u3, u10, u2, u1}"),
    ("buf12 at 0x7f54aa reads /tmp/a1/x.py:12", "buf3 at 0x11 reads /home/me/y/z.py"),
    ("<Foo object at 0x7f00> has no layout", "<Foo object at 0x12ab> has no layout"),
    ("kernel cpp_fused_add_0 failed", "kernel cpp_fused_mul_softmax_12 failed"),
    ("it broke\n\nfrom user code:\n  File a", "it broke\n\nSet TORCHDYNAMO_VERBOSE=1 for more"),
    (
        "/tmp/x/cyl.main.cpp:1034:54: error: cannot convert \u2018float*\u2019 to 'bool*'\n 1034",
        "/t/y.main.cpp:9:1: error: cannot convert 'float*' to 'bool*'\n/t/y.cpp:2:1: error: b",
    ),
    (
        "operator(), /tmp/a/b.main.cpp:1088, index out of bounds: 0 <= tmp13 < cur_qSplitSize",
        "cpp_fused_0, /t/x/c.main.cpp:12, index out of bounds: 0 <= tmp4 < 16",
    ),
    (
        f"{FAKE} call_function <built-in function sdpa>(*(DTensor(FakeTensor(size=(s1, 2))),), "
        "**{}): got RuntimeError('Cannot propagate: shape=(s1, 2), rule=(Flatten(dims=(Dim(dim=0), "
        "1)), 2).\\n\\nSharding propagation failed for aten.view.default(Spec(f32[s1, 2]))')",
        f"{FAKE} call_method matmul(*(DTensor(FakeTensor(size=(s1, s1 - ((s1 + 1)//2)))),), "
        "**{}): got RuntimeError('Cannot propagate: shape=(s1, ((s1**2)//s1)), rule=(Dim(dim=1), "
        "2).\\n\\nSharding propagation failed for aten._unsafe_view.default(Spec(f32[s1]))')",
    ),
    (  # a case has the second
        "the function `a.b` in file `/venv/lib/python3.11/site-packages/torch/_dynamo/x.py` is not",
        "the function `a.b` in file `torch/_dynamo/x.py` is not",
    ),
    (
        "expected size 4==4, stride 8==48 at dim=1; expected size 2==2, stride 1==8 at dim=2",
        "expected size 16==16, stride 32==8 at dim=0",
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_messages_that_differ_in_what_is_volatile_are_one(one: str, other: str) -> None:
    assert mask_volatile(one) == mask_volatile(other)
    assert strong(raised(one, LOWERING)) == strong(raised(other, LOWERING))


DIFFERENT = [
    ("'View' object has no attribute 'get_stride'", "'View' object has no attribute 'layout'"),
    ("/t/y.cpp:9:1: error: cannot convert 'float*' to 'bool*'",
     "/t/y.cpp:9:1: error: 'tmp4' was not declared in this scope"),
    ("Error in op: torch.ops.aten.bmm", "Error in op: torch.ops.aten.mm"),
    (f"HOP: Unsafe side effect{HOP}", f"HOP: Unsafe side effect{HOP.replace('point', 'mark')}"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_messages_that_differ_in_what_they_say_are_two(one: str, other: str) -> None:
    assert strong(raised(one, LOWERING)) != strong(raised(other, LOWERING))


@given(st.text(max_size=300))
def test_masking_gives_one_line_of_limited_length_for_any_text(text: str) -> None:
    masked = mask_volatile(text)
    assert len(masked) <= LONGEST and "\n" not in masked
    assert mask_volatile(text) == masked


def test_masking_a_huge_message_is_quick_enough_to_end() -> None:
    for text in (
        "((((" * 50_000,
        "FakeTensor(" * 20_000,
        "/a" * 100_000,
        "call_function f(*(" * 9999,
    ):
        assert len(mask_volatile(text)) <= LONGEST


def test_a_compilers_error_is_one_however_it_is_told() -> None:
    text = "error: cannot convert \u2018float*\u2019 to \u2018bool*\u2019"
    output = f"/tmp/a/c.main.cpp: In function f\n/tmp/a/c.main.cpp:12:3: {text}\n  12 | x\n"
    whole = raised(
        f"C++ compile error\n\nCommand:\ng++ a\n\nOutput:\n{output}", name="CppCompileError"
    )
    short = raised(f"C++ compile error: {text}", name="CppCompileError")
    silent = replace(raised("C++ compile error", name="CppCompileError"), evidence={"g++": output})
    assert strong(whole) == strong(short) == strong(silent)
    other = raised("C++ compile error: error: 'x' was not declared", name="CppCompileError")
    assert strong(other) != strong(short)


def test_types_places_and_phases_tell_failures_apart_but_lines_do_not() -> None:
    one = raised("it broke", LOWERING)
    assert one.raised is not None
    assert strong(one) != strong(raised("it broke", SCHEDULER))
    assert strong(one) != strong(raised("it broke", LOWERING, name="KeyError"))
    assert strong(one) != strong(replace(one, phase=Phase.BACKWARD))
    assert strong(one) == strong(replace(one, phase=Phase.FORWARD))
    moved = tuple(replace(frame, line=999) for frame in one.raised.frames)
    assert strong(one) == strong(replace(one, raised=replace(one.raised, frames=moved)))


def test_nothing_of_the_program_is_in_the_key_of_a_stack() -> None:
    failure = raised("it broke", LOWERING)
    other = Program(
        seed=5, shape=Shape(q_len=77, kv_len=3), q=Input(dtype="bfloat16"), compile=Compile()
    )
    assert strong(failure) == strong(failure, other)
    assert not signature(failure, other).needs_trigger


def test_without_a_stack_the_program_has_to_tell() -> None:
    assert signature(raised("it broke"), COMPILED).needs_trigger
    assert signature(raised("it broke", ("<program>", "attention")), COMPILED).needs_trigger
    assert signature(raised("it broke", ("<generated>", "call")), COMPILED).needs_trigger


def numbers(*outputs: str, kind: FailureKind = FailureKind.WRONG_RESULT) -> Failure:
    diffs = tuple(Diff(output=name, what="value", expected="1", actual="2") for name in outputs)
    return Failure(kind=kind, phase=Phase.CHECK, layer=Layer.INDUCTOR, diffs=diffs)


def test_a_wrong_result_is_named_by_what_is_wrong_first() -> None:
    assert strong(numbers("dv", "dq", "out")) == strong(numbers("out"))
    assert strong(numbers("lse")) != strong(numbers("out"))
    assert strong(numbers("dv", "lse")) == strong(numbers("lse"))
    assert strong(numbers("out", "cache_v")) == strong(numbers("cache_k")) != strong(numbers("out"))
    # Which gradients are wrong depends on which the program asks for.
    assert strong(numbers("dq")) == strong(numbers("dk", "dv")) == strong(numbers("dbias"))
    assert signature(numbers("out"), COMPILED).needs_trigger


def test_every_cache_of_a_program_counts_as_written() -> None:
    assert CACHES.keys() == WRITTEN


def test_a_wrong_result_is_told_apart_by_kernel_layer_and_kind() -> None:
    one = numbers("out")
    assert strong(one) != strong(one, Program())
    assert strong(one) != strong(replace(one, layer=Layer.EAGER))
    assert strong(one) != strong(numbers("out", kind=FailureKind.NONFINITE))
    aliases = set(signature(one, COMPILED).aliases)
    assert aliases & set(signature(numbers("out", kind=FailureKind.NONFINITE), COMPILED).aliases)


def test_wrong_metadata_is_told_apart_by_what_differs() -> None:
    def wrong(what: str) -> str:
        diff = Diff(output="out", what=what, expected="a", actual="b")
        return strong(replace(numbers("out", kind=FailureKind.METADATA_MISMATCH), diffs=(diff,)))

    assert wrong("stride") != wrong("dtype")


def crash(signal: str, *frames: Frame) -> Failure:
    told = Raised(type=f"Signal {signal}", message=f"killed by {signal}", frames=frames)
    return Failure(kind=FailureKind.CRASH, phase=Phase.EAGER, signal=signal, raised=told)


def native(function: str) -> Frame:
    return Frame(file="libtorch_cpu.so", function=function)


def test_a_crash_is_its_signal_and_its_native_frames() -> None:
    flash = native("at::native::(anonymous namespace)::flash<float, 32l>(at::Tensor const&)")
    other_type = native("at::native::(anonymous namespace)::flash<c10::Half, 512l>(at::Tensor)")
    assert strong(crash("SIGSEGV", flash)) == strong(crash("SIGSEGV", other_type, native("raise")))
    assert strong(crash("SIGSEGV", flash)) != strong(crash("SIGFPE", flash))
    assert strong(crash("SIGSEGV", flash)) != strong(
        crash("SIGSEGV", native("at::native::mm(int)"))
    )
    assert not signature(crash("SIGSEGV", flash), COMPILED).needs_trigger
    assert signature(crash("SIGSEGV"), COMPILED).needs_trigger


def test_corrupted_memory_is_one_key_however_it_shows() -> None:
    python = Frame(file="torch/_inductor/output_code.py", function="__call__", line=763)
    freed = replace(
        crash("SIGABRT"), raised=Raised(type="Signal SIGABRT", message="free(): invalid size")
    )
    assert strong(crash("SIGSEGV")) == strong(crash("SIGSEGV", python)) == strong(freed)
    unhandled = "terminate called after throwing an instance of 'c10::Error'"
    thrown = replace(freed, raised=Raised(type="Signal SIGABRT", message=unhandled))
    assert strong(thrown) != strong(freed)
    assert strong(crash("SIGFPE")) != strong(freed)


def test_generic_frames_are_left_out() -> None:
    frames = [
        Frame(file="<program>", function="attention", line=1),
        Frame(file="torch/_dynamo/eval_frame.py", function="_fn", line=1),
        Frame(file="torch/_inductor/lowering.py", function="wrapped", line=1),
        Frame(file=LOWERING[0], function=LOWERING[1], line=1),
        Frame(file=LOWERING[0], function=LOWERING[1], line=2),
        Frame(file="torch/_ops.py", function="__call__", line=1),
    ]
    assert significant_frames(frames) == (":".join(LOWERING),)


def test_a_signature_is_plain_data() -> None:
    assert signature(numbers("out"), COMPILED) == signature(numbers("out"), COMPILED)
    assert isinstance(signature(numbers("out"), COMPILED), Signature)


def test_where_memory_ends_is_chance_unless_much_was_asked_for_at_once() -> None:
    def asking(size: int, phase: Phase, layer: Layer) -> Failure:
        message = f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {size} bytes."
        return Failure(
            kind=FailureKind.OUT_OF_MEMORY, phase=phase, layer=layer,
            raised=Raised(type="RuntimeError", message=message),
        )  # fmt: skip

    leaks = [
        signature(asking(1 << 20, Phase.EAGER, Layer.EAGER), Program()),
        signature(asking(1 << 30, Phase.FORWARD, Layer.DYNAMO), Program(compile=Compile())),
    ]
    assert len({leak.strong for leak in leaks}) == 1 and not leaks[0].needs_trigger
    assert signature(asking(1 << 30, Phase.EAGER, Layer.EAGER), FLEX).strong != leaks[0].strong
    assert signature(asking(1 << 50, Phase.EAGER, Layer.EAGER), Program()).strong != leaks[0].strong


def test_how_an_operator_that_mixes_was_reached_does_not_matter() -> None:
    def mixing(operator: str, *functions: str) -> Signature:
        message = f"{operator} got mixed torch.Tensor and DTensor, need to convert all torch.Tensor"
        file = "torch/distributed/tensor/_dispatch.py"
        frames = tuple(Frame(file=file, function=name, line=1) for name in functions)
        raised = Raised(type="RuntimeError", message=message, frames=frames)
        return signature(
            Failure(
                kind=FailureKind.TYPE_MIXING, phase=Phase.EAGER, layer=Layer.EAGER, raised=raised
            ),
            Program(),
        )

    slow, fast = mixing("aten.add.Tensor", "dispatch", "slow_path"), mixing("aten.add.Tensor")
    assert slow.strong == fast.strong and fast.needs_trigger
    assert mixing("aten.mul.Tensor").strong != fast.strong


def test_a_title_keeps_what_says_most() -> None:
    assert title("RuntimeError: short", " in here") == "RuntimeError: short in here"
    sentence = "RuntimeError: it cannot be computed with these two arguments."
    assert title(f"{sentence} {'word ' * 40}", " in here") == f"{sentence[:-1]} in here"
    long = title("RuntimeError: " + "word " * 40, " in here")
    assert long.endswith("word …") and len(long) <= TITLE_LENGTH
    fits = "RuntimeError: " + "word " * 24 + "end"
    assert title(fits, " in a_function_with_a_long_name") == fits


def test_an_error_met_on_fake_tensors_is_the_title() -> None:
    message = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node: "
        "call_function aten.index(*(FakeTensor(..., size=(2, 1)),), **{}): got RuntimeError('*bdim "
        "< tensor.dim() INTERNAL ASSERT FAILED at /a/b/c.cpp:27, please report a bug. ')\nHint: no"
    )
    raised = Raised(type="torch._dynamo.exc.TorchRuntimeError", message=message)
    failure = Failure(
        kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, layer=Layer.DYNAMO, raised=raised
    )
    told = signature(failure, FLEX).title
    assert told.startswith("RuntimeError: *bdim < tensor.dim() INTERNAL ASSERT FAILED")
