"""The texts of issues: golden ones of shipped cases, and hostile ones; what was run is recorded.

`ATTNFUZZ_UPDATE_GOLDEN=1` rewrites `golden/issues`; review the difference.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.fuzz.issue.bisection import answer, bisecting, no_bisection
from attnfuzz.fuzz.issue.evidence import Evidence, NotShown, check_device
from attnfuzz.fuzz.issue.log import FIRST, LAST, WIDEST, trimmed
from attnfuzz.fuzz.issue.shown import shows
from attnfuzz.fuzz.issue.text import form_of, issue_text
from attnfuzz.fuzz.issue.versions import versions
from attnfuzz.fuzz.pool.tasks import ReproRun
from attnfuzz.fuzz.report.bucket import Page
from attnfuzz.fuzz.report.pages import page
from attnfuzz.generators.kernels.specs import FlashAttn, NpuFusionAttention
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import Input
from attnfuzz.generators.render.issue_script import issue_script, ways
from tests.support.fenced_blocks import blocks, without_blocks

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "golden" / "issues"
SHIPPED = ROOT / "corpus" / "cases"
RECORDED_COLLECT_ENV = (GOLDEN / "recorded_collect_env.txt").read_text().rstrip()
RECORDED_ABLATION = {
    "layer=eager": "passes", "layer=dynamo": "passes", "layer=aot_eager": "passes",
    "dynamic=True": "fails", "dynamic=False": "fails",
}  # fmt: skip
HERE = {"torch": "2.13.0+cpu", "cpu": "AMD EPYC"}


def recorded(found: Page, place: int = 0, **rest: Any) -> Evidence:
    """What was run once for a page, as far as a text tells it."""
    way = ways(found.program, found.failure)[place]
    script = issue_script(found.program, found.failure, way)
    stands = None if len(ways(found.program, found.failure)) == 1 else not place
    compiled = form_of(found).compiler
    evidence = Evidence(
        script=script, runs=3, failures=3, stands=stands,
        bisection="BisectionResult(backend='inductor', subsystem='lowerings', bisect_number=2, "
        "debug_info='flex_attention')" if compiled else None,
        no_bisection=None, ablation=RECORDED_ABLATION if compiled else {}, environment=HERE,
        log=f"Traceback (most recent call last):\nAssertionError: {script.message}",
        collected=RECORDED_COLLECT_ENV,
    )  # fmt: skip
    return replace(evidence, **rest)


@pytest.mark.parametrize("name", ["5023b693", "4080b6d1", "02951761", "84d2bd1f"])
def test_golden(name: str) -> None:
    found = page(SHIPPED, name)
    text = issue_text(found, recorded(found))
    path = GOLDEN / f"{name}.md"
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_code_in_the_text_is_what_was_run() -> None:
    for name in ("5023b693", "111ac4f5", "2443cb07", "1adbcc08"):
        found = page(SHIPPED, name)
        evidence = recorded(found)
        code = blocks(issue_text(found, evidence))[0]
        assert code == evidence.script.text.rstrip()


def test_a_person_has_a_place_and_the_fuzzer_is_named() -> None:
    found = page(SHIPPED, "5023b693")
    text = issue_text(found, recorded(found))
    assert "TO BE WRITTEN BY THE PERSON WHO FILES THIS" in text
    assert "was written by a fuzzer, attnfuzz" in text


def test_what_does_not_stand_at_default_tolerances_says_so_and_why_it_is_still_one() -> None:
    found = page(SHIPPED, "5023b693")
    small = replace(found.failure.diffs[0], error=6e-5, budget=6e-6)
    found = replace(found, failure=replace(found.failure, diffs=(small,)))
    text = issue_text(found, recorded(found, 1))
    assert "does not stand at default tolerances" in text and "100 times that error" in text
    assert "topic: fuzzer" not in text and "module: numerical-stability" in text


def test_eager_failures_get_the_other_form_without_a_compiler() -> None:
    found = page(SHIPPED, "02951761")
    text = issue_text(found, recorded(found))
    assert "template=bug-report.yml" in text
    assert "CompilerBisector" not in text and "oncall: pt2" not in text


def test_flash_attention_and_torch_npu_get_their_own_text() -> None:
    half = Input(dtype="float16")
    found = page(SHIPPED, "02951761")
    flash = replace(
        found, program=replace(found.program, kernel=FlashAttn(), q=half, k=half, v=half)
    )
    text = issue_text(flash, recorded(flash))
    assert "Dao-AILab/flash-attention" in text and "not on a card" in text
    assert "more than twice that of the same computation in low-precision torch" in text
    npu = replace(found, program=replace(found.program, kernel=NpuFusionAttention()))
    text = issue_text(npu, recorded(npu))
    assert "Ascend/pytorch" in text and "| CANN | TO BE FILLED IN |" in text


HOSTILE = (
    "```\n</details><script>alert(1)</script>\n# owned\n~~~ @everyone | [x](javascript:a) "
    "\x1b[2J\u202e {{ 7*7 }} {% raw %}"
)


def test_hostile_text_is_text() -> None:
    found = page(SHIPPED, "84d2bd1f")
    raised = found.failure.raised
    assert raised is not None
    failure = replace(found.failure, raised=replace(raised, message=HOSTILE))
    environment = {**found.environment, "torch": HOSTILE}
    hostile = replace(
        found, failure=failure, environment=environment, variants={f"torch={HOSTILE}": HOSTILE}
    )
    evidence = recorded(
        hostile, log=HOSTILE, collected=HOSTILE, bisection=HOSTILE, environment={"torch": HOSTILE},
        ablation={f"dynamic={HOSTILE}": HOSTILE},
    )  # fmt: skip
    text = issue_text(hostile, evidence)
    assert "\x1b" not in text and "\u202e" not in text
    outside = without_blocks(text)
    outside = re.sub(r"(`+).*?\1", "", outside)
    assert not re.search(r"(?<!\\)<(?!details>|/details>|!-- -->)", outside)
    assert outside.count("</details>") == outside.count("<details>") == 1
    assert not re.search(r"^# owned", outside, re.MULTILINE) and "@everyone" not in outside
    assert "49" not in outside


def test_a_failure_of_a_device_that_is_not_here_is_refused_in_a_sentence() -> None:
    with pytest.raises(NotShown, match=r"c04c935b: its code needs a device .*H100"):
        check_device(page(SHIPPED, "c04c935b"))


# -- what was run ------------------------------------------------------------------------------


def test_a_run_shows_the_failure_only_in_its_own_words() -> None:
    found = page(SHIPPED, "4080b6d1")
    script = recorded(found).script
    said = "ValueError: not enough values to unpack (expected 4, got 2)\n"
    said += f"AssertionError: {script.message}"
    assert shows(ReproRun(1, said), script, found.failure)
    assert not shows(ReproRun(1, said.replace("unpack", "pack")), script, found.failure)
    assert not shows(ReproRun(1, "ModuleNotFoundError: no torch"), script, found.failure)
    assert not shows(ReproRun(0, ""), script, found.failure)
    assert not shows(ReproRun(None, said), script, found.failure)


def test_a_crash_may_also_be_a_wrong_number() -> None:
    crash = Failure(
        kind=FailureKind.CRASH, phase=Phase.FORWARD, layer=Layer.INDUCTOR, signal="SIGSEGV"
    )
    found = replace(page(SHIPPED, "5023b693"), failure=crash)
    script = recorded(found).script
    assert shows(ReproRun(-11, ""), script, crash)
    assert shows(ReproRun(1, f"AssertionError: {script.message}"), script, crash)
    assert not shows(ReproRun(1, "AssertionError: another"), script, crash)


def test_the_bisector_is_asked_only_where_it_can_answer() -> None:
    asked = {
        name: no_bisection(page(SHIPPED, name).program, page(SHIPPED, name).failure) is None
        for name in ("5023b693", "02951761", "5f61a10d", "2fd12c22")
    }
    assert asked == {"5023b693": True, "02951761": False, "5f61a10d": False, "2fd12c22": True}


def test_a_bisecting_script_calls_test_fn_alone_and_its_answer_is_read() -> None:
    found = page(SHIPPED, "5023b693")
    text = bisecting(recorded(found).script, found.failure)
    compile(text, "bisecting.py", "exec")
    assert (
        "do_bisect(judged)" in text
        and "return test_fn()" in text
        and "assert test_fn()" not in text
    )
    assert answer("noise\nBisection complete: BisectionResult(x)\n") == "BisectionResult(x)"
    assert answer("noise") is None


def test_a_log_keeps_its_beginning_and_its_end_and_no_folders() -> None:
    lines = [f"line {number}" for number in range(1000)]
    log = trimmed("\n".join([*lines, "x" * 1000, "  /root/home/site-packages/torch/a.py"]))
    assert len(log.splitlines()) == FIRST + LAST + 1 and "962 lines left out" in log
    assert "/root" not in log and log.endswith("torch/a.py")
    assert max(map(len, log.splitlines())) <= WIDEST + 2


def test_versions_gather_all_that_is_recorded() -> None:
    found = replace(page(SHIPPED, "5023b693"), variants={"torch=2.15.0": "passes"})
    assert versions(found) == {"2.13.0+cpu": "fails in 5/5 fresh runs", "2.15.0": "passes"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "2014aa93",
            "/tmp/x/c3.cpp:9:7: error: operands to ‘?:’ have different types ‘a::V’",
        ),
        (
            "2fd12c22",
            "Dynamo failed to run FX node with fake tensors: call_function x(*(T, 0), **{}): got "
            "RuntimeError('*bdim < tensor.dim() INTERNAL ASSERT FAILED at \"/pytorch/P.cpp\":27')",
        ),
    ],
)
def test_a_compilers_words_are_found_in_what_is_around_them(name: str, line: str) -> None:
    found = page(SHIPPED, name)
    script = recorded(found).script
    name_of_type = (found.failure.raised.type if found.failure.raised else "").rpartition(".")[2]
    said = f"{line}\n{name_of_type}\nAssertionError: {script.message}"
    assert shows(ReproRun(1, said), script, found.failure)
