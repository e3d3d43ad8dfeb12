"""`toolchain`, `replay` with several toolchains and `bisect`, in real sandboxes. The other releases
of torch are fakes: this interpreter, changed at its start (see `support.fake_toolchains`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.corpus.bucket import new_bucket
from attnfuzz.corpus.case import Case, write_bucket, write_case
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.cli.toolchain import grouped, size
from attnfuzz.fuzz.errors import EXIT_BAD_INPUT, EXIT_CHANGED, EXIT_OK
from attnfuzz.fuzz.replay.matrix import Cell, Column, Result
from attnfuzz.fuzz.report import matrix
from attnfuzz.generators.kernels.specs import Sdpa
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import Program
from tests.support.fake_toolchains import FIXES, fake_toolchain

Run = Callable[..., "subprocess.CompletedProcess[str]"]

FAILING = Program(kernel=Sdpa(scale=0.0, mask_form="is_causal"), mask=Causal())
NAN = Failure(
    kind=FailureKind.NONFINITE,
    phase=Phase.CHECK,
    layer=Layer.EAGER,
    diffs=(Diff(output="out", what="value", expected="0.1", actual="nan"),),
)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A case that fails with this torch."""
    bucket = new_bucket(signature(NAN, FAILING), NAN, features(FAILING))
    write_bucket(tmp_path / "corpus", bucket)
    found = Case(program=FAILING, failure=NAN, environment={"target": "cpu"}, runs=5, failures=5)
    return write_case(tmp_path / "corpus", bucket, found)


@pytest.fixture
def torches(tmp_path: Path) -> dict[str, str]:
    """Fake releases of torch, by what they are."""
    at_start = {
        "old": "", "fixed": FIXES, "broken": "import sys; sys.modules['torch._C'] = None",
    }  # fmt: skip
    return {name: str(fake_toolchain(tmp_path / name, text)) for name, text in at_start.items()}


@pytest.mark.slow
def test_a_bisection_skips_what_is_broken(
    attnfuzz: Run, case: Path, torches: dict[str, str]
) -> None:
    order = [torches[name] for name in ("old", "broken", "fixed")]
    ran = attnfuzz("bisect", case, "--toolchains", ",".join(order), timeout=300)
    assert ran.returncode == EXIT_OK, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith(f"{order[0]}: bad: ") and lines[0].endswith(", fails")
    assert lines[1].startswith(f"{order[2]}: good: ") and lines[1].endswith(", passes")
    assert lines[2].startswith(f"{order[1]}: broken: torch cannot be imported: ")
    assert lines[3] == (
        f"first good: {order[2]}; last bad before it: {order[0]}; "
        f"between them nothing is known of {order[1]}"
    )


@pytest.mark.slow
def test_a_matrix_says_what_each_toolchain_does(
    attnfuzz: Run, case: Path, torches: dict[str, str]
) -> None:
    order = [torches[name] for name in ("old", "fixed", "broken")]
    given = ("--toolchain", ",".join(order), "--record", "--json")
    ran = attnfuzz("replay", case, *given, timeout=300)
    assert ran.returncode == EXIT_CHANGED, ran.stderr
    found = json.loads(ran.stdout)
    assert [one["python"] for one in found["toolchains"]] == order
    (row,) = found["cases"]
    assert row["case"] == case.name and row["bucket"] == case.parent.name.partition("-")[0]
    results = [row["results"][python] for python in order]
    assert [one["result"] for one in results] == ["fails", "passes", "not run"]
    assert "torch" in results[2]["detail"]
    noted = [one.said.outcomes for one in history(case.parent)]
    assert noted == [{case.name: "as_recorded"}, {case.name: "fixed"}]


def test_a_bisection_needs_something_to_bisect(attnfuzz: Run, case: Path) -> None:
    for options, says in (
        ((), "bisect: expected either --torch or --toolchains"),
        (("--torch", "2.15"), "--torch: expected a range like 2.11..2.15"),
        (("--toolchains", "python"), "--toolchains: expected two or more"),
        (("--toolchains", "no,nor"), "got no, which is neither"),
    ):
        ran = attnfuzz("bisect", case, *options)
        assert ran.returncode == EXIT_BAD_INPUT and says in ran.stderr, ran.stderr


def test_a_toolchain_that_is_not_there(attnfuzz: Run) -> None:
    ran = attnfuzz("toolchain", "remove", "no-such")
    assert ran.returncode == EXIT_BAD_INPUT and "no-such: there is none" in ran.stderr
    ran = attnfuzz("toolchain", "add", "a/b", "--torch", "2.15.0")
    assert ran.returncode == EXIT_BAD_INPUT and "toolchain NAME: expected" in ran.stderr


CELLS = (Cell(Result.FAILS), Cell(Result.OTHERWISE, "crash: <b>|*x*\x1b[31m"))
COLUMNS = (
    Column("old", "/a/python", CELLS, {"torch": "2.12.1"}),
    Column("new", "/b/python", (Cell(Result.PASSES), Cell(Result.PASSES)), {"torch": "2.15.0"}),
)
NAMED = tuple(matrix.Named(f"bucket{i}", f"case{i}", "cpu", f"/c/{i}") for i in range(2))


def test_the_matrix_as_markdown() -> None:
    assert matrix.as_markdown(NAMED, COLUMNS).splitlines() == [
        "| bucket | case | target | torch 2.12.1 | torch 2.15.0 |",
        "| --- | --- | --- | --- | --- |",
        "| `bucket0` | `case0` | cpu | fails | passes |",
        "| `bucket1` | `case1` | cpu | fails otherwise | passes |",
        "",
        r"- old, case1: fails otherwise: crash: \<b\>\|\*x\*\\x1b\[31m",
    ]


def test_the_matrix_as_data() -> None:
    data = matrix.as_data(NAMED, COLUMNS)
    assert data["cases"][1]["results"]["old"]["result"] == "fails otherwise"
    assert json.loads(json.dumps(data)) == data


def test_targets_are_listed_in_short() -> None:
    assert grouped(["cpu", "virtual-sm80", "virtual-sm90", "interpreted-sm90"]) == (
        "cpu, virtual-* (2), interpreted-sm90"
    )


def test_size_counts_what_is_linked_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    once = size(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert size(tmp_path) == once >= 100_000
