"""What variants of a minimized program did lies beside its case: a copy of the corpus has it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import get_args

import pytest
from rich.console import Console

from attnfuzz.corpus.case import (
    VARIANTS,
    Case,
    CaseError,
    find_cases,
    read_bucket,
    read_case,
    write_case,
)
from attnfuzz.corpus.models import VariantResult
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.pool.tasks import RunTask, WorkerDied
from attnfuzz.fuzz.reduce.variants import Variants
from attnfuzz.fuzz.report.bucket import page_json, page_markdown, page_text
from attnfuzz.fuzz.report.pages import page
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from tests.support.fake_campaign import run
from tests.support.fake_pool import raised

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made")
    run(directory, shipped=False, variants=True)
    return directory


def matrices(directory: Path) -> dict[str, dict[str, str]]:
    """What the store has, by the id of the program that was found."""
    with Store(directory, create=False) as store:
        rows = [row for row in store.failures() if row.state == "done"]
        return {row.program_id: store.variants(row.program_id) for row in rows}


def test_each_case_has_the_matrix_of_its_program(made: Path) -> None:
    there = {case.original: dict(case.variants) for case in cases(made)}
    assert there == matrices(made) and all(there.values())


def cases(directory: Path) -> list[Case]:
    return [read_case(folder) for folder in find_cases([directory / "corpus"])]


def test_a_copied_corpus_shows_it(made: Path, tmp_path: Path, attnfuzz: Run) -> None:
    corpus = Path(shutil.copytree(made / "corpus", tmp_path / "copied"))
    for folder in find_cases([corpus]):
        bucket, case = read_bucket(folder.parent), read_case(folder)
        told = page(corpus, bucket.id)
        assert told.variants == case.variants == page(made, bucket.id).variants
        out = io.StringIO()
        Console(file=out, width=120).print(page_text(told))
        issue = page_markdown(told)
        for name, result in case.variants.items():
            assert f"| {name} | {result} |" in issue
            assert any(
                line.split() == [name, *result.split()] for line in out.getvalue().split("\n")
            )
        assert page_json(told)["variants"] == case.variants
    shown = attnfuzz("show", bucket.id, "--dir", corpus, "--json")
    assert json.loads(shown.stdout)["variants"] == case.variants


def test_a_case_is_copied_with_it(made: Path, tmp_path: Path) -> None:
    (folder, *_) = find_cases([made / "corpus"])
    case = read_case(folder)
    copied = write_case(tmp_path, read_bucket(folder.parent), case)
    assert read_case(copied) == case
    assert (copied / VARIANTS).read_bytes() == (folder / VARIANTS).read_bytes()


def test_a_corpus_of_before_shows_what_the_store_has(made: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(made, tmp_path / "copied"))
    for folder in find_cases([copied / "corpus"]):
        (folder / VARIANTS).unlink()
        name = read_bucket(folder.parent).id
        assert page(copied, name).variants == page(made, name).variants != {}


def test_without_variants_there_is_no_file(tmp_path: Path) -> None:
    run(tmp_path, shipped=False, variants=False)
    assert cases(tmp_path) and not list(tmp_path.rglob(VARIANTS))


@pytest.mark.parametrize(
    "text, told",
    [
        ("variants: {kernel=flex: maybe}", "variants.kernel=flex: "),
        ("variants: {kernel=flex: [passes]}", "variants.kernel=flex: "),
        ("variants: {'\\e[2J': passes}", "variants."),
        ("variants: {'a|b': passes}", "variants."),
        ("variants: {}\nmore: 1", "more: unknown key"),
        ("variants: [passes]", "variants: "),
        ("[]", "expected a mapping, got []"),
        ("variants: {" + ", ".join(f"k=v{n}: passes" for n in range(1001)) + "}", "1000"),
    ],
)
def test_what_is_no_matrix_is_one_sentence(
    made: Path, tmp_path: Path, text: str, told: str
) -> None:
    (folder, *_) = find_cases([made / "corpus"])
    case = Path(shutil.copytree(folder, tmp_path / folder.name))
    (case / VARIANTS).write_text(text)
    with pytest.raises(CaseError) as caught:
        read_case(case)
    said = str(caught.value)
    assert said.startswith(str(case / VARIANTS)) and told in said
    assert "\n" not in said and "\x1b" not in said


def test_every_word_of_a_matrix_can_be_read() -> None:
    programs = [Program(seed=number) for number in range(6)]
    names = dict(zip("abcdef", programs, strict=True))
    stage = Variants(names, lambda program, outcome: program.seed == 0)
    passed, rejected = Outcome(status="passed"), Outcome(status="rejected", rejection="by design")
    answers = {0: raised("x"), 1: raised("y"), 2: passed, 3: rejected, 4: None, 5: raised("z")}
    seen = set()
    while not stage.finished:
        task = stage.next_task()
        assert isinstance(task, RunTask)
        (program,) = task.programs
        answer = answers[program.seed]
        if program.seed == 5 and program in seen:
            answer = passed
        seen.add(program)
        stage.report(task, [answer] if answer else WorkerDied(3))
    assert set(stage.matrix.values()) == set(get_args(VariantResult))
