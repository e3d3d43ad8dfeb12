"""The child on whole programs, each in a fork: what it tells of programs that misbehave."""

from __future__ import annotations

from typing import Any

import pytest

from attnfuzz.generators.model.codec import outcome_from_data
from tests.support.child_programs import (
    HANDWRITTEN,
    REFERENCE,
    SDPA,
    TRAINING,
    Told,
    compile_settings,
    source,
    tell,
)

pytestmark = pytest.mark.slow
LEAVES = "return tuple(torch.randn(2, 2, 8, 16, requires_grad=True) for _ in range(3))"
# Behaves differently when dynamo traces it, so that eager passes and compiled does not.
WHEN_COMPILED = "if torch.compiler.is_compiling():\n    {then}\n" + SDPA


def planted(then: str) -> str:
    return WHEN_COMPILED.format(then=then)


def compiled(text: str, backend: str = "eager", **changes: Any) -> Told:
    return tell(text, {"compile": compile_settings(backend, **changes)})


def test_a_correct_program_passes_and_its_outcome_is_well_formed() -> None:
    text = source(inputs=LEAVES, run=TRAINING, compile_arguments=", backend='aot_eager'")
    told = compiled(text, "aot_eager")
    assert told.kind == "passed"
    assert told.phases[:4] == ["build", "reference", "eager", "compile"]
    assert {"forward", "backward", "check"} <= set(told.phases)
    outcome = outcome_from_data(told.outcome)
    assert outcome.cost.peak_rss_mb > 0
    assert set(outcome.cost.phases) >= {"build", "eager", "compile"}
    assert "frames.1" in outcome.features


def test_a_wrong_eager_result_is_blamed_on_eager() -> None:
    failure = tell(source(SDPA + " * 1.001")).failure
    assert (failure["kind"], failure["layer"], failure["phase"]) == (
        "wrong_result", "eager", "check",
    )  # fmt: skip
    [found] = failure["diffs"]
    assert found["output"] == "out"
    assert found["error"] > found["budget"] > 0
    assert "elements of out" in failure["evidence"]
    assert "error map of out" in failure["evidence"]


def test_a_wrong_gradient_is_found_and_named() -> None:
    attention = SDPA.replace("k, v)", "k * 1.0, v + 0.01 * (v - v.detach()))")
    diffs = tell(source(attention, inputs=LEAVES, run=TRAINING)).failure["diffs"]
    assert [found["output"] for found in diffs] == ["dv"]


def test_a_wrong_compiled_result_is_blamed_on_the_first_layer_that_shows_it() -> None:
    text = source(planted("return F.scaled_dot_product_attention(q, k, v) * 1.01"))
    assert compiled(text).failure["layer"] == "dynamo"
    told = compiled(text.replace("backend='eager'", "backend='aot_eager'"), "aot_eager")
    assert (told.kind, told.failure["layer"]) == ("wrong_result", "dynamo")


def test_a_program_with_a_group_is_loaded_again_for_blame() -> None:
    group = """
import torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
"""
    text = source(planted("return F.scaled_dot_product_attention(q, k, v) * 1.01"), extra=group)
    text = text.replace("backend='eager'", "backend='aot_eager'")
    told = compiled(text, "aot_eager", via="module")
    assert (told.kind, told.failure["layer"]) == ("wrong_result", "dynamo")


AOT_FAULT = """
from torch._functorch import aot_autograd
before = aot_autograd.{function}
def faulty(*args, **options):
    {fault}
aot_autograd.{function} = faulty
"""


def test_an_exception_in_aot_autograd_is_blamed_on_it() -> None:
    extra = AOT_FAULT.format(function="create_aot_state", fault='raise IndexError("no slot")')
    told = compiled(source(extra=extra, compile_arguments=", backend='aot_eager'"), "aot_eager")
    failure = told.failure
    assert (failure["kind"], failure["phase"], failure["layer"]) == (
        "compile_error", "compile", "aot_eager",
    )  # fmt: skip
    assert failure["raised"]["type"] == "IndexError"
    assert failure["raised"]["message"] == "no slot"
    assert any(frame["file"].startswith("torch/") for frame in failure["raised"]["frames"])


def test_a_stride_that_only_the_compiled_result_has() -> None:
    fault = "return F.scaled_dot_product_attention(q, k, v).mT.contiguous().mT"
    [found] = compiled(source(planted(fault))).failure["diffs"]
    assert (found["output"], found["what"]) == ("out", "stride")


def test_the_shape_of_eager_is_judged_against_the_reference() -> None:
    failure = tell(source(SDPA + ".flatten(0, 1)")).failure
    assert failure["kind"] == "metadata_mismatch"
    assert failure["diffs"][0]["what"] == "shape"


@pytest.mark.parametrize(
    ("body", "output", "what"),
    [
        ("q.mul_(1.0000001)\n" + SDPA, "q", "storage"),
        ("torch.manual_seed(1)\n" + SDPA, "global state", "rng_state"),
        ("torch.set_default_dtype(torch.float64)\n" + SDPA, "global state", "default_dtype"),
        ("torch._C._set_grad_enabled(False)\n" + SDPA, "global state", "grad_mode"),
    ],
)
def test_a_mutation_of_arguments_or_global_state(body: str, output: str, what: str) -> None:
    failure = tell(source(body)).failure
    assert failure["kind"] == "mutation"
    assert (output, what) in {(d["output"], d["what"]) for d in failure["diffs"]}


def test_bytes_of_an_argument_outside_its_view_count() -> None:
    inputs = "return (torch.randn(2, 2, 9, 16)[:, :, 1:], *torch.randn(2, 2, 2, 8, 16))"
    body = "q.as_strided((1,), (1,), 0).zero_()\n" + SDPA
    failure = tell(source(body, inputs=inputs)).failure
    assert [found["what"] for found in failure["diffs"]] == ["storage"]


def test_nondeterminism() -> None:
    body = "state['n'] += 1\nscale = 1 + 2e-7 * (state['n'] % 2)\n" + SDPA + " * scale"
    text = source(body, extra="state = {'n': 0}")
    assert tell(text).kind == "nondeterminism"
    assert tell(text, {"deterministic": False}).kind == "passed"


def test_a_listed_refusal_is_a_rejection_and_an_unlisted_one_a_failure() -> None:
    text = source('raise NotImplementedError("no such thing on a Monday")')
    told = tell(text, {"refusals": [{"pattern": "^NotImplementedError: no such", "why": "Monday"}]})
    assert (told.outcome["status"], told.outcome["rejection"]) == ("rejected", "Monday")
    failure = tell(text).failure
    assert (failure["kind"], failure["phase"]) == ("runtime_error", "eager")
    assert failure["raised"]["frames"][-1]["file"] == "<program>"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise SystemExit(3)", "runtime_error"),
        ("raise KeyboardInterrupt", "runtime_error"),
        ("raise Broken", "runtime_error"),
        ("return torch.empty(2**50)", "out_of_memory"),
        ("raise MemoryError", "out_of_memory"),
        ('raise RuntimeError("op: got mixed torch.Tensor and DTensor, need")', "type_mixing"),
    ],
)
def test_whatever_a_program_raises_becomes_a_failure(body: str, kind: str) -> None:
    extra = "class Broken(BaseException):\n    def __str__(self):\n        raise ValueError"
    assert tell(source(body, extra=extra)).kind == kind


def test_an_exception_in_the_backward_pass_says_so() -> None:
    extra = """
class Faulty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("no backward today")
"""
    text = source(
        SDPA.replace("(q,", "(Faulty.apply(q),"), extra=extra, inputs=LEAVES, run=TRAINING
    )
    assert tell(text).failure["phase"] == "backward"


def test_a_reference_that_raises_is_a_defect_of_the_harness() -> None:
    failure = tell(source(reference="return q @ k")).failure
    assert (failure["phase"], failure["oracle"]) == ("reference", "harness")


def test_a_graph_break_is_an_exception_only_under_fullgraph() -> None:
    body = "torch._dynamo.graph_break()\n" + SDPA
    told = compiled(source(body))
    assert any(feature.startswith("graph_break:") for feature in told.outcome["features"])
    assert (told.kind, told.failure["layer"]) == ("graph_break", "dynamo")
    assert told.failure["diffs"][0]["actual"] == "Call to `torch._dynamo.graph_break()`"
    assert "Hint" in told.failure["evidence"]["graph breaks"]
    text = source(body, compile_arguments=", backend='eager', fullgraph=True")
    failure = compiled(text, fullgraph=True).failure
    assert (failure["kind"], failure["phase"], failure["layer"]) == (
        "compile_error", "compile", "dynamo",
    )  # fmt: skip


def test_a_graph_break_in_what_makes_the_arguments_is_not_attentions() -> None:
    extra = """
@torch.compile(backend="eager")
def prepared(t):
    torch._dynamo.graph_break()
    return t + 0
"""
    inputs = (
        "torch.manual_seed(0)\nreturn tuple(prepared(torch.randn(1, 2, 4, 16)) for _ in range(3))"
    )
    assert compiled(source(SDPA, extra=extra, inputs=inputs)).kind == "passed"


def test_a_graph_break_by_design_is_a_refusal() -> None:
    refusal = {"pattern": "Unsupported: Call to .torch._dynamo.graph_break", "why": "asked for"}
    text = source("torch._dynamo.graph_break()\n" + SDPA)
    told = tell(text, {"compile": compile_settings("eager"), "refusals": [refusal]})
    assert (told.kind, told.outcome["rejection"]) == ("rejected", "asked for")


CALLS = {
    "shape_arguments": "B, Lq, Lkv",
    "inputs": "return tuple(torch.randn(B, 2, n, 16) for n in (Lq, Lkv, Lkv))",
    "calls": "CALLS = [(2, 8, 8), (2, 9, 9), (2, 10, 10), (2, 9, 9)]",
}


def test_several_calls_pass_and_recompile_as_shapes_change() -> None:
    told = compiled(source(**CALLS))
    assert told.kind == "passed"
    assert any(feature.startswith("recompile:") for feature in told.outcome["features"])


def test_recompiling_without_need_is_found_with_its_reason() -> None:
    body = "state['n'] = state['n'] + 1\n" + SDPA + " * (state['n'] * 0 + 1)"
    always_different = "state = {'n': 0}\ntorch._dynamo.config.automatic_dynamic_shapes = False"
    calls = {**CALLS, "calls": "CALLS = [(2, 8, 8)] * 4"}
    failure = compiled(source(body, extra=always_different, **calls)).failure
    assert failure["kind"] == "recompile_limit"
    assert failure["diffs"][0]["what"] == "compilations"
    assert "state" in failure["evidence"]["recompile reasons"]


def test_more_static_shapes_than_the_limit_are_the_programs_own_doing() -> None:
    calls = {**CALLS, "calls": "CALLS = [(2, n, n) for n in range(5, 15)]"}
    arguments = ", backend='eager', dynamic=False, fullgraph=True"
    text = source(compile_arguments=arguments, **calls)
    assert compiled(text, dynamic=False, fullgraph=True).kind == "rejected"


def test_giving_up_at_the_recompile_limit_is_found_though_it_is_silent() -> None:
    body = "state['n'] += 1\n" + SDPA + " * state['n'] ** 0"
    lengths = [(2, n, n) for n in range(5, 17)]
    calls = {**CALLS, "calls": f"CALLS = {lengths}"}
    told = compiled(source(body, extra="state = {'n': 0}", **calls))
    assert told.kind == "recompile_limit"
    assert told.failure["diffs"][0]["actual"] == "uncompiled"


def test_flex_attention_that_silently_runs_uncompiled() -> None:
    switched_off = "torch.compiler.set_stance('force_eager')"
    told = compiled(source("return flex_attention(q, k, v)", extra=switched_off))
    assert told.kind == "graph_break"
    assert told.failure["diffs"][0]["output"] == "flex_attention"


def test_sdpa_with_scale_zero_is_not_finite() -> None:
    """A bug of torch 2.13 itself; where it is mended the program passes."""
    text = source(
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.0)",
        reference="""
allowed = torch.ones(8, 8, dtype=torch.bool).tril()
scores = (q @ k.mT * 0.0).masked_fill(~allowed, float("-inf"))
return torch.softmax(scores, dim=-1) @ v
""",
    )
    assert tell(text).kind in ("nonfinite", "passed")


def test_bool_score_mod_does_not_compile_with_inductor() -> None:
    """A bug of torch 2.13's C++ code generation; where it is mended the program passes."""
    text = source(
        "return flex_attention(q, k, v, score_mod=score_mod)",
        extra="def score_mod(score, b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx",
        reference="""
allowed = torch.ones(8, 8, dtype=torch.bool).tril()
return torch.softmax(allowed.to(q.dtype).expand(2, 2, 8, 8), dim=-1) @ v
""",
        compile_arguments=", fullgraph=True",
    )
    told = compiled(text, "inductor", fullgraph=True)
    if told.kind != "passed":
        failure = told.failure
        assert (failure["kind"], failure["phase"], failure["layer"]) == (
            "compile_error", "compile", "inductor",
        )  # fmt: skip
        assert failure["raised"]["type"] == "torch._inductor.exc.CppCompileError"
        assert failure["raised"]["message"].startswith("C++ compile error: error: ")


def test_inductor_end_to_end_with_its_features() -> None:
    told = compiled(source(HANDWRITTEN, compile_arguments=""), "inductor")
    assert told.kind == "passed"
    assert any(feature.startswith(("kernel:", "calls:")) for feature in told.outcome["features"])


def test_batches_may_be_permuted_where_the_job_says_so() -> None:
    job = {"oracles": {"batch_permutable": True}}
    assert tell(source(), job).kind == "passed"
    remembered = "if q[0, 0, 0, 0] != first: return v * 0\n"
    extra = "torch.manual_seed(0); first = torch.randn(2, 2, 8, 16)[0, 0, 0, 0]"
    assert tell(source(remembered + SDPA, extra=extra), job).kind == "wrong_result"
    assert tell(source(remembered + SDPA, extra=extra)).kind == "passed"


def test_reference_text_is_what_the_sources_share() -> None:
    """The sources above stand on it: the plain reference judges plain attention right."""
    assert tell(source(REFERENCE)).kind == "passed"


def test_a_block_mask_that_cannot_be_made_is_not_the_harness() -> None:
    text = source(
        inputs="""
from torch.nn.attention.flex_attention import create_block_mask
create_block_mask(lambda b, h, q_idx, kv_idx: {}[0], 1, 1, 8, 8, device="cpu")
"""
    )
    failure = tell(text).failure
    assert (failure["phase"], failure["oracle"]) == ("build", "refusal")
    failure = tell(source(inputs="return {}[0]")).failure
    assert (failure["phase"], failure["oracle"]) == ("build", "harness")


def test_what_a_function_captures_is_an_argument_too() -> None:
    text = source(
        "f()\n" + SDPA,
        inputs="""
table = torch.zeros(3)
def f():
    table.add_(1)
return (*torch.randn(3, 2, 2, 8, 16), f)
""",
        reference=REFERENCE,
    )
    text = text.replace("def attention(q, k, v)", "def attention(q, k, v, f)")
    text = text.replace("def reference(q, k, v)", "def reference(q, k, v, f)")
    failure = tell(text).failure
    assert failure["kind"] == "mutation"
    assert failure["diffs"][0]["output"] == "f.table"
