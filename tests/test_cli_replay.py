"""`run`, `replay`, `triage` and `show` on real cases, in real sandboxes.

SDPA on the CPU gives NaN for `is_causal=True, scale=0.0` (torch 2.11 to 2.13), which makes a case
that fails for real, at once, without a compiler.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.case import Case, Preload, read_case, write_bucket, write_case
from attnfuzz.corpus.replays import read_replays
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.environment import lacks_cpu
from attnfuzz.fuzz.errors import EXIT_BAD_INPUT, EXIT_CHANGED, EXIT_OK
from attnfuzz.fuzz.replay.verdict import seen_failure
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.codec import dump_program
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import Program
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels
from tests.support.systems_toolchain import TOOLCHAIN as PYTHON_OF_SYSTEMS
from tests.support.systems_toolchain import needs_systems

ROOT = Path(__file__).resolve().parent.parent

Run = Callable[..., "subprocess.CompletedProcess[str]"]

FAILING = Program(kernel=Sdpa(scale=0.0, mask_form="is_causal"), mask=Causal())
PASSING = replace(FAILING, kernel=Sdpa(mask_form="is_causal"))
NAN = Failure(
    kind=FailureKind.NONFINITE,
    phase=Phase.CHECK,
    layer=Layer.EAGER,
    diffs=(Diff(output="out", what="value", expected="0.1", actual="nan"),),
)
WRONG = replace(NAN, kind=FailureKind.WRONG_RESULT)
STRIDES = replace(
    NAN,
    kind=FailureKind.METADATA_MISMATCH,
    diffs=(Diff(output="out", what="strides", expected="(16, 1)", actual="(1, 16)"),),
)
FAULT = """\
import torch.nn.functional as F

right = F.scaled_dot_product_attention


def halved(*args, **kwargs):
    return right(*args, **kwargs) / 2


F.scaled_dot_product_attention = halved
"""


def record(corpus: Path, program: Program, failure: Failure, *preload: Preload) -> Path:
    """A case in `corpus` that says `program` fails so, every time."""
    bucket = new_bucket(signature(failure, program), failure, features(program))
    write_bucket(corpus, bucket)
    # A repro.py that nobody may run.
    booby_trap = f"open({str(corpus / 'executed')!r}, 'w')"
    return write_case(
        corpus,
        bucket,
        Case(
            program=program,
            failure=failure,
            environment={"torch": "0.0.1"},
            runs=5,
            failures=5,
            minimized=True,
            preload=preload,
            repro=booby_trap,
        ),
    )


@pytest.mark.slow
def test_run_tells_what_became_of_a_program(scratch: Path, attnfuzz: Run) -> None:
    path = scratch / "program.yaml"
    path.write_text(dump_program(FAILING))
    result = attnfuzz("run", path, "--json")
    assert result.returncode == EXIT_CHANGED, result.stderr
    told = json.loads(result.stdout)
    assert told["outcome"]["failure"]["kind"] == "nonfinite"
    assert told["outcome"]["failure"]["layer"] == "eager"
    assert told["key"].startswith("nonfinite-")
    path.write_text(dump_program(PASSING))
    passed = attnfuzz("run", path)
    assert passed.returncode == EXIT_OK
    assert "passed" in passed.stdout


@pytest.mark.slow
def test_run_says_why_a_target_is_not_to_be_had_as_launch_does(
    scratch: Path, attnfuzz: Run
) -> None:
    path = scratch / "program.yaml"
    path.write_text(dump_program(PASSING))
    result = attnfuzz("run", path, "--target", "xpu")
    assert result.returncode == EXIT_BAD_INPUT
    assert result.stderr.startswith("attnfuzz: target xpu: torch ")
    assert "finds no XPU device" in result.stderr


@pytest.mark.slow
def test_replay_tells_as_recorded_fixed_and_changed_apart(scratch: Path, attnfuzz: Run) -> None:
    same = record(scratch, FAILING, NAN)
    fixed = record(scratch, PASSING, NAN)
    changed = record(scratch, replace(FAILING, seed=1), STRIDES)
    result = attnfuzz("replay", scratch, "--json", "--workers", "1")
    assert result.returncode == EXIT_CHANGED, result.stderr
    told = {case["path"]: case for case in json.loads(result.stdout)["cases"]}
    assert told[str(same)]["verdict"] == "as_recorded"
    assert told[str(fixed)]["verdict"] == "fixed"
    assert told[str(changed)]["verdict"] == "changed"
    assert "changed to nonfinite" in told[str(changed)]["tells"]
    assert told[str(fixed)]["environment"]["torch"][0] == "0.0.1"
    assert not (scratch / "executed").exists()
    (noted,) = read_replays(scratch)
    assert noted.counts == {"as_recorded": 1, "changed": 1, "fixed": 1}
    assert noted.others == {fixed.name: "fixed", changed.name: "changed"}
    alone = attnfuzz("replay", same)
    assert alone.returncode == EXIT_OK, alone.stderr
    assert "1 case: 1 as recorded" in alone.stdout
    name = same.parent.name.partition("-")[0]
    by_id = attnfuzz("replay", name, "--dir", scratch)
    assert by_id.returncode == EXIT_OK and str(same) in by_id.stdout, by_id.stderr
    assert read_replays(scratch) == [noted]  # of all that is there only


@pytest.mark.slow
def test_preload_files_are_executed_only_when_that_was_asked(scratch: Path, attnfuzz: Run) -> None:
    fault = scratch / "fault.py"
    fault.write_text(FAULT)
    case = record(scratch / "corpus", PASSING, WRONG, Preload.of(fault))
    refused = attnfuzz("replay", case)
    assert refused.returncode == EXIT_BAD_INPUT
    assert "fault.py" in refused.stderr and "--allow-preload" in refused.stderr
    for option in (("--allow-preload",), ("--preload", fault)):
        result = attnfuzz("replay", case, *option)
        assert result.returncode == EXIT_OK, result.stdout + result.stderr


def target_of(case: Path) -> str:
    return read_case(case).environment["target"]


def of_system(case: Path) -> bool:
    """Whether its program calls a package that `make systems` installs."""
    return plugin_of(read_case(case).program).package in SYSTEMS


SYSTEMS = {"transformers", "torchtitan", "yunchang", "diffusers", "attn_gym", "torchtune"}
PLANTED = {"graph_break", "metadata_mismatch", "recompile_limit", "no_valid_choices", "hang"}


ANYWHERE = {"compile_error", "wrong_result", "type_mixing", "runtime_error"}
PARTS = 3
"""The shipped cases are replayed in so many tests, which may run beside each other."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_the_shipped_corpus_behaves_as_recorded(part: int, attnfuzz: Run) -> None:
    """Every case is complete. What the processor decides may be fixed on another one."""
    shipped = sorted((ROOT / "corpus" / "cases").glob("*/*/environment.yaml"))
    paths = [path.parent for path in shipped if target_of(path.parent) == "cpu"]
    paths = [path for path in paths if not of_system(path)][part::PARTS]
    result = attnfuzz("replay", *paths, "--workers", "1", "--json", timeout=900)
    assert result.returncode in (EXIT_OK, EXIT_CHANGED), result.stderr
    cases = json.loads(result.stdout)["cases"]
    assert len(cases) == len(paths) > 10
    kinds = {case["expected"]["kind"] for case in cases if case["verdict"] == "as_recorded"}
    always = ANYWHERE & {case["expected"]["kind"] for case in cases}
    assert kinds >= always and len(always) >= 3, kinds
    for case in cases:
        there = {path.name for path in Path(case["path"]).iterdir()}
        assert there >= {"program.yaml", "repro.py", "failure.yaml", "environment.yaml"}
        if lacks_cpu(read_case(Path(case["path"])).environment) is not None:
            assert case["verdict"] == "not_run", case["path"]
            continue
        elsewhere = "cpu" in case["environment"]
        assert elsewhere or case["verdict"] == "as_recorded", (case["path"], case["tells"])


@pytest.mark.slow
def test_the_planted_cases_behave_as_recorded(attnfuzz: Run) -> None:
    planted = ROOT / "corpus" / "planted"
    refused = attnfuzz("replay", planted)
    assert refused.returncode == EXIT_BAD_INPUT and "--allow" in refused.stderr
    result = attnfuzz("replay", planted, "--allow-preload", "--workers", "1", "--json", timeout=540)
    assert result.returncode == EXIT_OK, result.stdout + result.stderr
    told = json.loads(result.stdout)["cases"]
    assert [case["verdict"] for case in told] == ["as_recorded"] * len(told)
    assert {case["expected"]["kind"] for case in told} == PLANTED


@pytest.mark.slow
@needs_kernels
def test_the_shipped_cases_of_virtual_cards_behave_as_recorded(attnfuzz: Run) -> None:
    """One of each bucket: Triton takes minutes for some of the others, which have its cause."""
    shipped = sorted((ROOT / "corpus" / "cases").glob("*/*/environment.yaml"), reverse=True)
    of_buckets = {
        path.parent.parent: path.parent
        for path in shipped
        if "virtual" in target_of(path.parent) and not of_system(path.parent)
    }
    cases = list(of_buckets.values())
    result = attnfuzz(
        "replay", *cases, "--toolchain", TOOLCHAIN, "--workers", "1", "--json", timeout=540
    )
    assert result.returncode == EXIT_OK, result.stdout + result.stderr
    verdicts = [case["verdict"] for case in json.loads(result.stdout)["cases"]]
    assert verdicts == ["as_recorded"] * len(cases) and cases


@pytest.mark.slow
@needs_systems
def test_the_shipped_cases_of_systems_behave_as_recorded(attnfuzz: Run) -> None:
    shipped = sorted((ROOT / "corpus" / "cases").glob("*/*/environment.yaml"))
    cases = [path.parent for path in shipped if of_system(path.parent)]
    result = attnfuzz(
        "replay", *cases, "--toolchain", PYTHON_OF_SYSTEMS, "--workers", "1", "--json", timeout=540
    )
    assert result.returncode == EXIT_OK, result.stdout + result.stderr
    verdicts = [case["verdict"] for case in json.loads(result.stdout)["cases"]]
    assert verdicts == ["as_recorded"] * len(cases) and cases


def test_a_preload_file_of_another_text_is_refused(scratch: Path, attnfuzz: Run) -> None:
    fault = scratch / "fault.py"
    fault.write_text(FAULT)
    case = record(scratch / "corpus", PASSING, WRONG, Preload.of(fault))
    fault.write_text(FAULT.replace("/ 2", "/ 3"))
    result = attnfuzz("replay", case, "--preload", fault)
    assert result.returncode == EXIT_BAD_INPUT
    assert "SHA-256" in result.stderr


def test_a_case_with_a_damaged_program_is_refused(scratch: Path, attnfuzz: Run) -> None:
    case = record(scratch, FAILING, NAN)
    (case / "program.yaml").write_text("shape: {q_len: -1}\n")
    result = attnfuzz("replay", case)
    assert result.returncode == EXIT_BAD_INPUT
    assert "program.yaml: shape.q_len" in result.stderr


def test_triage_and_show_read_a_corpus_without_a_campaign(scratch: Path, attnfuzz: Run) -> None:
    case = record(scratch, FAILING, NAN)
    record(scratch, PASSING, WRONG)
    buckets = json.loads(attnfuzz("triage", scratch, "--json").stdout)["buckets"]
    assert [bucket["kind"] for bucket in buckets] == ["wrong_result", "nonfinite"]
    name = buckets[1]["id"]
    told = json.loads(attnfuzz("show", name, "--dir", scratch, "--json").stdout)
    assert told["cases"] == [str(case)]
    assert told["program"]["kernel"]["scale"] == 0.0
    page = attnfuzz("show", name[:5], "--dir", scratch)
    assert page.returncode == EXIT_OK
    assert "executed" in page.stdout  # the text of repro.py, shown and not run
    issue = attnfuzz("show", name, "--dir", scratch, "--markdown").stdout
    assert issue.startswith("# ") and "```python" in issue and "- torch: 0.0.1" in issue
    assert not (scratch / "executed").exists()


def test_an_unknown_bucket_is_refused_with_those_there_are(scratch: Path, attnfuzz: Run) -> None:
    case = record(scratch, FAILING, NAN)
    result = attnfuzz("show", "zzz", "--dir", scratch)
    assert result.returncode == EXIT_BAD_INPUT
    assert case.parent.name.partition("-")[0] in result.stderr


def test_not_finite_and_wrong_are_alike_to_replay() -> None:
    assert seen_failure(NAN, FAILING).key == seen_failure(WRONG, FAILING).key
    assert seen_failure(STRIDES, FAILING).key != seen_failure(WRONG, FAILING).key
