"""Bisection, with answers that are made up; the command is tested in test_toolchain_commands."""

from __future__ import annotations

import pytest

from attnfuzz.fuzz.replay.bisection import Answer, Bisection, Step, answer_of, bisect
from attnfuzz.fuzz.replay.matrix import Cell, Result

ANSWERS = {"b": Answer.BAD, "g": Answer.GOOD, "?": Answer.UNCLEAR, "x": Answer.BROKEN}


def run(answers: str, recorded: int | None = None) -> Bisection:
    """Bisects releases "0", "1" …, which answer so; fails where one is tested twice."""
    tested: set[int] = set()

    def test(place: int) -> Step:
        assert place not in tested
        tested.add(place)
        return Step(str(place), ANSWERS[answers[place]])

    return bisect(len(answers), test, recorded)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("gb", "first bad: 1; last good before it: 0"),
        ("bg", "first good: 1; last bad before it: 0"),
        ("ggggbbbbb", "first bad: 4; last good before it: 3"),
        ("bbbbbbbbg", "first good: 8; last bad before it: 7"),
        ("xgg?bbx", "first bad: 4; last good before it: 2; between them nothing is known of 3"),
        ("g??xb", "first bad: 4; last good before it: 0; between them nothing is known of 1, 2, 3"),
        ("ggbgg", "first bad: 2; last good before it: 1\nfirst good: 3; last bad before it: 2"),
        ("bbb", "no change found: 0, 2 and 1 are all bad"),
        ("g?g", "no change found: 0 and 2 are all good"),
        ("xx?g", "nothing found: fewer than two toolchains could be told"),
        ("xx", "nothing found: fewer than two toolchains could be told"),
    ],
)
def test_what_is_found(answers: str, expected: str) -> None:
    assert run(answers).summary == expected


def test_what_came_and_went_is_found_from_where_it_was_recorded() -> None:
    found = run("gbggg", recorded=1)
    assert [str(change.after.name) for change in found.changes] == ["1", "2"]
    assert run("gbggg").changes == ()  # the middle does not show it


def test_of_many_few_are_tested() -> None:
    found = run("g" * 700 + "b" * 324)
    assert found.changes[0].after.name == "700"
    assert len(found.steps) <= 12


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (Result.FAILS, Answer.BAD),
        (Result.REWORDED, Answer.BAD),
        (Result.SOMETIMES, Answer.BAD),
        (Result.PASSES, Answer.GOOD),
        (Result.OTHERWISE, Answer.UNCLEAR),
        (Result.REJECTS, Answer.UNCLEAR),
        (Result.NOT_RUN, Answer.UNCLEAR),
    ],
)
def test_what_a_result_says(result: Result, answer: Answer) -> None:
    assert answer_of(Cell(result)) is answer
