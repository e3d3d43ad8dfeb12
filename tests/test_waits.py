"""The longest waits of a campaign."""

from __future__ import annotations

from attnfuzz.fuzz.campaign.waits import BEHIND, FIRST_RUN, KNOWN, NewPrograms, Waiting


def test_the_longest_time_without_a_new_program_is_of_all_workers_together() -> None:
    new = NewPrograms(0.0)
    new.start(1, 0.0)
    new.start(2, 10.0)
    new.stop(1, [1.0, 30.0], 40.0)
    assert new.longest == 1.0, "the other shard may have begun programs since it was handed out"
    new.stop(2, [1.0, 11.0], 50.0)
    assert new.longest == 10.0  # 1, 11, 21, 30, and nothing is known after that
    assert new.close(90.0) == 60.0


def test_a_campaign_that_wants_no_new_programs_does_not_wait_for_one() -> None:
    new = NewPrograms(0.0)
    new.start(1, 0.0)
    new.stop(1, [2.0], 5.0)
    new.pause(6.0)
    new.pause(100.0)
    new.start(2, 200.0)
    new.stop(2, [7.0], 210.0)
    assert new.close(210.0) == 7.0


def test_only_cheap_findings_that_waited_count_each_by_what_it_waited_for() -> None:
    now = 0.0
    waiting = Waiting(lambda: now)
    waiting.begin("cheap", 3.0)
    waiting.begin("dear", 60.0)
    now = 4.0
    waiting.begin("late", 3.0)
    waiting.begin("known", 3.0)
    waiting.end("cheap")
    waiting.end("cheap")
    now = 30.0
    assert waiting.seconds(["dear", "late", "cheap"]) == 30.0
    waiting.end("dear")
    waiting.end("late", behind=True)
    now = 40.0
    waiting.end("known", behind=True, known=True)
    assert waiting.longest == {FIRST_RUN: 4.0, BEHIND: 26.0, KNOWN: 36.0}
    assert waiting.seconds(["late"]) == 0.0


def test_what_waited_behind_another_and_is_looked_at_itself_waits_anew() -> None:
    now = 0.0
    waiting = Waiting(lambda: now)
    waiting.begin("behind", 3.0)
    now = 900.0
    waiting.end("behind", behind=True)
    assert waiting.begin("behind", 3.0) == 900.0
    now = 910.0
    waiting.end("behind")
    assert waiting.longest == {BEHIND: 900.0, FIRST_RUN: 10.0}
