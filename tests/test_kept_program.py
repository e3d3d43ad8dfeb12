"""A program minimized by hand is kept in a corpus, as a campaign's finding is."""

from __future__ import annotations

import sys
from pathlib import Path

from attnfuzz.corpus.case import find_cases, read_bucket, read_case
from attnfuzz.fuzz.adopt import Adopted
from attnfuzz.fuzz.kept_program import RUNS, keep
from attnfuzz.fuzz.reduce.finding import Finding
from attnfuzz.generators.methods.specs import AllGather
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import Input, Layout, Mesh, Program, Shape
from tests.support.fake_pool import wrong

SHAPE = Shape(kv_len=2)
FAILS = 'assert False, "out is off by 1, rounding explains 1e-06"\n'
PASSES = "pass\n"


def kept(corpus: Path, program: Program, script: str = FAILS, most: int = 3) -> Adopted:
    outcome = wrong("out")
    finding = Finding.of(program, outcome, "cpu")
    finding.runs = finding.failed = 5
    where = {"torch": "2.13.0", "python": "3.11"}
    return keep(
        finding, script, corpus, most=most, python=sys.executable, environment=where, preload=()
    )


def test_it_is_a_case_of_a_new_bucket_that_says_how_its_script_did(tmp_path: Path) -> None:
    program = Program(shape=SHAPE, mask=Causal())
    done = kept(tmp_path / "found", program)
    [folder] = find_cases([tmp_path / "found"])
    case, bucket = read_case(folder), read_bucket(folder.parent)
    assert (done.new, done.cases) == ([bucket.id], 1)
    assert (case.program, case.runs, case.failures) == (program, 5, 5)
    assert case.environment["target"] == "cpu" and case.environment["torch"] == "2.13.0"
    tried = bucket.tried[case.id]
    assert (tried.runs, tried.reproduced) == (RUNS, RUNS)


def test_a_script_that_passes_by_itself_is_told(tmp_path: Path) -> None:
    kept(tmp_path / "found", Program(shape=SHAPE), PASSES)
    [folder] = find_cases([tmp_path / "found"])
    [tried] = read_bucket(folder.parent).tried.values()
    assert (tried.runs, tried.reproduced) == (RUNS, 0)


def test_the_same_sort_of_thing_is_no_bucket_that_was_there(tmp_path: Path) -> None:
    """An expanded key is not what an expanded query is; another expanded query is."""
    corpus, expand = tmp_path / "found", (2,)
    query = Input(layout=Layout(order=(0, 2, 3, 1), expand=expand))
    first = kept(corpus, Program(shape=SHAPE, q=query))
    of_key = kept(corpus, Program(shape=SHAPE, k=Input(layout=Layout(expand=expand))))
    assert len(first.new) == len(of_key.new) == 1 and of_key.new != first.new
    same = kept(corpus, Program(shape=SHAPE, q=Input(layout=Layout(expand=(0,)))))
    assert (same.new, same.known) == ([], first.new)


def test_a_program_that_a_bucket_there_explains_is_no_new_bucket(tmp_path: Path) -> None:
    corpus = tmp_path / "found"
    first = kept(corpus, Program(shape=SHAPE))
    again = kept(corpus, Program(shape=SHAPE))
    assert (again.new, again.known, again.cases) == ([], first.new, 0)
    more = Program(shape=SHAPE, q=Input(values="large"))
    other = kept(corpus, more, most=1)
    assert (other.new, other.known, other.cases, other.left_out) == ([], first.new, 0, 1)
    assert kept(corpus, more).cases == 1
    assert len(find_cases([corpus])) == 2


def test_the_script_of_simulated_ranks_is_started_for_each_rank(tmp_path: Path) -> None:
    shared = Mesh(world_size=2, method=AllGather())
    program = Program(shape=Shape(q_len=32, kv_len=32), mesh=shared)
    of_second = "import os\nif os.environ['RANK'] == '1':\n    " + FAILS
    kept(tmp_path / "found", program, of_second)
    [folder] = find_cases([tmp_path / "found"])
    [tried] = read_bucket(folder.parent).tried.values()
    assert (tried.runs, tried.reproduced) == (1, 1)  # each run is two processes
