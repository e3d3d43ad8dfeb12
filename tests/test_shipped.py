"""The shipped cases: real, whole, labelled with their threads, with the scripts of today."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.case import find_cases, read_bucket, read_case
from attnfuzz.corpus.known_issues import load_known_issues, match
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.campaign.save_case import script_for
from attnfuzz.generators.render.repro import repro

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
CASES = find_cases([CORPUS / "cases"])
PLANTED = find_cases([CORPUS / "planted"])
IS_PLANTED = "The fault is planted, by the function at the top; torch does not have it."


def name(folder: Path) -> str:
    return f"{folder.parent.name[:8]}-{folder.name}"


@pytest.mark.parametrize("folder", [*CASES, *PLANTED], ids=name)
def test_a_case_has_the_key_and_the_title_of_today(folder: Path) -> None:
    case, bucket = read_case(folder), read_bucket(folder.parent)
    found = signature(case.failure, case.program)
    assert folder.name == case.id and folder.parent.name == bucket.folder
    assert case.failures == case.runs >= 3
    if bucket.strong == found.strong:
        assert bucket.title == found.title
    else:  # another way in which the same cause shows
        assert len(find_cases([folder.parent])) > 1


@pytest.mark.parametrize("folder", CASES, ids=name)
def test_a_case_is_nobodys_but_the_record_that_it_is_labelled_with(folder: Path) -> None:
    case, bucket = read_case(folder), read_bucket(folder.parent)
    issue = match(case.failure, case.program, case.environment)
    assert (issue.id if issue else None) == bucket.known_issue


@pytest.mark.parametrize("folder", CASES, ids=name)
def test_a_script_is_what_is_rendered_today(folder: Path) -> None:
    case = read_case(folder)
    target = TARGETS[case.environment["target"]]
    texts = [
        script_for(case.program, case.failure, target, by_value=by_value)
        for by_value in (False, True)  # what is decided by what lies in memory
    ]
    assert case.repro in texts
    if target.stand_in is not None:
        told = ast.get_docstring(ast.parse(case.repro))
        assert told is not None and target.stand_in.device in told and "not run" in told


def test_nothing_is_shipped_twice_and_every_bucket_has_a_case() -> None:
    buckets = [read_bucket(file.parent) for file in CORPUS.glob("cases/*/bucket.yaml")]
    assert {folder.parent for folder in CASES} == {
        file.parent for file in CORPUS.glob("cases/*/bucket.yaml")
    }
    keys = {(bucket.strong, bucket.trigger if bucket.needs_trigger else None) for bucket in buckets}
    assert len(keys) == len(buckets) == len({bucket.id for bucket in buckets})
    known = {bucket.known_issue for bucket in buckets} - {None}
    assert known <= {issue.id for issue in load_known_issues()}
    assert sum(bucket.known_issue is None for bucket in buckets) >= 12


def test_nothing_among_the_finds_is_planted_and_what_is_says_so() -> None:
    assert not any(read_case(folder).preload for folder in CASES)
    assert all(read_case(folder).preload for folder in PLANTED)
    told = (CORPUS / "planted" / "README.md").read_text()
    assert all(read_bucket(folder.parent).id in told for folder in PLANTED)
    assert not {folder.parent.name for folder in CASES} & {folder.parent.name for folder in PLANTED}


@pytest.mark.parametrize("folder", PLANTED, ids=name)
def test_a_planted_cases_script_stands_alone(folder: Path) -> None:
    case = read_case(folder)
    preload = {one.name: one.text for one in case.preload}
    assert case.repro == repro(case.program, case.failure, where=IS_PLANTED, preload=preload)
    imported = {
        node.module
        for node in ast.walk(ast.parse(case.repro))
        if isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("torch")
    }
    assert all(f'sys.modules["{module}"]' in case.repro for module in imported)
