"""What goes wrong before a program (preload files, a function of one's own) is a sentence that
names the file and says what is wrong, never a failure of torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.shard import Shard, Tally
from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.case import Case, Preload, write_bucket, write_case
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Outcome, Phase
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.module import source

Run = Callable[..., "subprocess.CompletedProcess[str]"]

HASTY = Deadlines(build=1.5)


def refused(result: subprocess.CompletedProcess[str], *words: object) -> None:
    """Exit code 2, one sentence on stderr with all of `words`, nothing on stdout."""
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("attnfuzz: ")
    for word in words:
        assert str(word) in line, line


PRELOAD = {
    "a syntax error": ("def (\n", "SyntaxError: invalid syntax"),
    "an exit": ("import sys\n\nsys.exit(3)\n", ", line 3: SystemExit: 3"),
    "an exception": ("x = 1\nraise ValueError('not today')\n", ", line 2: ValueError: not today"),
    "an exception from below": ("import json\njson.loads('[')\n", ", line 2: json.decoder.JSOND"),
    "a missing module": ("import nowhere_at_all\n", "No module named 'nowhere_at_all'"),
    "a text that raises": (
        "class E(Exception):\n    def __str__(self):\n        1 / 0\nraise E\n",
        ", line 4: preload.E: <its text cannot be had",
    ),
    "a crash": ("import os\nos.kill(os.getpid(), 11)\n", "killed by SIGSEGV"),
    "an end without a word": ("import os\nos._exit(4)\n", "exited with code 4"),
    "no end": ("while True:\n    pass\n", "no progress in phase setup in 1.5 s"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRELOAD)
def test_a_preload_file_that_fails_is_no_failure(
    name: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    text, says = PRELOAD[name]
    file = tmp_path / "preload.py"
    file.write_text(text)
    sandbox.preload = (str(file),)
    outcome = sandbox.run(source(Program()), Job(deadlines=HASTY), confirm_hang=False)
    assert outcome.status == "not_run" and outcome.failure is None
    assert outcome.rejection is not None
    assert outcome.rejection.startswith(f"preload file {file}") and says in outcome.rejection


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere_at_all:attention", "No module named 'nowhere_at_all'"),
        ("math:attention", "has no attention"),
        ("math:pi", "expected a function, got one of type float"),
    ],
)
def test_a_function_that_is_not_to_be_had_is_no_failure(
    target: str, says: str, sandbox: Sandbox
) -> None:
    sandbox.preload = ()
    outcome = sandbox.run("", Job(function=target))
    assert outcome.status == "not_run"
    assert outcome.rejection is not None
    assert outcome.rejection.startswith(f"kernel.target: {target}: ") and says in outcome.rejection


@pytest.mark.slow
def test_what_a_preload_file_does_later_is_a_failure(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "fault.py"
    file.write_text(
        "import torch.nn.functional as F\n\n\ndef planted(*args, **kwargs):\n"
        "    raise ValueError('planted')\n\n\nF.scaled_dot_product_attention = planted\n"
    )
    sandbox.preload = (str(file),)
    outcome = sandbox.run(source(Program()), Job.of(Program()))
    assert outcome.status == "failed" and outcome.failure is not None
    assert outcome.failure.phase is Phase.EAGER
    only = sandbox.run("", Job(only_setup=True))
    assert only.status == "passed"


def test_a_campaign_counts_what_was_not_run_and_keeps_nothing_of_it() -> None:
    tally = Tally(Shard(campaign_seed=1, index=0, size=2))
    tally.add(Program(), Outcome(status="passed"))
    tally.add(Program(seed=1), Outcome(status="not_run", rejection="preload file a.py: E: x"))
    report = tally.report(0.0, 0.0)
    assert report.counts == {"not_run": 1, "passed": 1}
    assert report.rejections == {"preload file a.py: E: x": 1}
    assert report.failures == [] and report.defects == () and report.by_key == {}


@pytest.mark.slow
def test_run_minimize_and_replay_refuse_what_cannot_be_set_up(scratch: Path, attnfuzz: Run) -> None:
    broken, plain, own = (scratch / name for name in ("broken.py", "plain.yaml", "own.yaml"))
    broken.write_text("def (\n")
    plain.write_text("seed: 1\n")
    own.write_text("kernel: {kind: function, target: 'nowhere_at_all:attend'}\n")
    refused(attnfuzz("run", plain, "--preload", broken), broken, "SyntaxError")
    allowed = ("--allow-function", "nowhere_at_all:attend")
    refused(attnfuzz("run", own, *allowed), own, "kernel.target", "nowhere_at_all")
    refused(
        attnfuzz("minimize", own, *allowed, "--workers", "1"),
        own,
        "kernel.target",
        "nowhere_at_all",
    )
    failure = Failure(
        kind=FailureKind.NONFINITE,
        phase=Phase.CHECK,
        layer=Layer.EAGER,
        diffs=(Diff(output="out", what="value", expected="0.1", actual="nan"),),
    )
    bucket = new_bucket(signature(failure, Program()), failure, features(Program()))
    write_bucket(scratch / "corpus", bucket)
    case = Case(program=Program(), failure=failure, preload=(Preload.of(broken),))
    folder = write_case(scratch / "corpus", bucket, case)
    refused(attnfuzz("replay", folder, "--allow-preload"), folder / "preload" / "broken.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("preload: [broken.py]\nprofiles: {eager: 1}\n", ("broken.py", "SyntaxError")),
        (
            "functions: [{target: 'math:sin'}, {target: 'math:pi'}]\nprofiles: {function: 1}\n",
            ("functions[1].target: math:pi", "expected a function"),
        ),
    ],
)
def test_a_launch_refuses_what_cannot_be_set_up_and_leaves_nothing(
    text: str, words: tuple[str, ...], scratch: Path, attnfuzz: Run
) -> None:
    (scratch / "broken.py").write_text("def (\n")
    config = scratch / "campaign.yaml"
    config.write_text(f"minutes: 5\nworkers: 1\n{text}")
    (scratch / "out").mkdir()
    (scratch / "out" / "mine").write_text("")
    refused(attnfuzz("launch", config, "--dir", scratch / "out"), config, *words)
    assert os.listdir(scratch / "out") == ["mine"]
