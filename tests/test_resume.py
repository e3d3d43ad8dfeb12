"""Real campaigns, killed with SIGKILL and resumed; see `benchmarks/kill_resume.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnfuzz.corpus.store.rows import State as FailureState
from benchmarks.campaign_state import State, damage, grown
from benchmarks.kill_resume import Moment, play


@pytest.mark.slow
def test_killed_and_resumed_nothing_is_lost_doubled_or_left(tmp_path: Path) -> None:
    rounds = list(play(tmp_path / "k", kills=1, seed=5))
    assert [one.violations for one in rounds] == [[], []]
    assert [one.ended for one in rounds] == ["killed", "exit 0"]
    assert rounds[-1].buckets > 0
    assert rounds[-1].shards > rounds[0].shards


def test_the_moments_follow_from_the_seed() -> None:
    from random import Random

    def drawn(seed: int) -> list[Moment]:
        random = Random(seed)
        return [Moment.draw(random) for _ in range(50)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {moment.early for moment in drawn(1)} == {True, False}
    assert all(0 < moment.delay <= 15 for moment in drawn(1))


WHOLE = State(
    shards={0: 5, 1: 5},
    executed=10,
    failures={"a": FailureState.DONE, "b": FailureState.NEW},
    buckets={"1": ("key", ("mask",)), "2": ("key", ("score",))},
    counted=frozenset({"key"}),
    recorded=frozenset({"key"}),
    cases=("1-slug/a",),
)


def changed(**values: object) -> State:
    return State(**{**vars(WHOLE), **values})


def test_a_whole_state_is_not_faulted() -> None:
    assert damage(WHOLE, 5) == []
    assert damage(changed(shards={0: 5, 1: 6}, executed=11, behind={1: 1}), 5) == []
    assert grown(WHOLE, WHOLE) == []
    assert grown(State(), WHOLE) == []


@pytest.mark.parametrize(
    "state, complaint",
    [
        (changed(shards={0: 5, 1: 4}), "shard 1 counts 4"),
        (changed(shards={0: 5, 1: 6}), "shard 1 counts 6"),
        (changed(behind={1: 1}), "shard 1 counts 5"),
        (changed(executed=15), "15 programs counted, 10 in shards"),
        (changed(buckets={"1": ("key", ("mask",)), "2": ("key", ("mask",))}), "two buckets"),
        (changed(counted=frozenset({"key", "other"})), "no failure is recorded: other"),
        (changed(cases=("1-slug/a", "2-slug/a")), "case a is there 2 times"),
        (changed(problems=("not whole: x",)), "not whole"),
    ],
)
def test_damage_is_seen(state: State, complaint: str) -> None:
    assert any(complaint in said for said in damage(state, 5))


@pytest.mark.parametrize(
    "state, complaint",
    [
        (changed(shards={1: 5}), "shard 0 is lost"),
        (changed(failures={"a": FailureState.DONE}), "failure b is lost"),
        (changed(failures={"a": FailureState.NEW, "b": FailureState.NEW}), "was done and is new"),
        (changed(buckets={"1": ("key", ("mask",))}), "bucket 2 is lost"),
        (changed(cases=()), "case 1-slug/a is lost"),
    ],
)
def test_a_loss_is_seen(state: State, complaint: str) -> None:
    assert any(complaint in said for said in grown(WHOLE, state))
