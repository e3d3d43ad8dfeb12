"""What ranks did together, compared, on records written by hand; `test_gang` has real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.sandbox import collectives
from attnfuzz.actors.sandbox.collectives import Collective, Message, Record, divergence

GROUPS = {"0": (0, 1, 2)}


def op(number: int, name: str = "all_reduce", group: str = "0", **other: Any) -> Collective:
    values: dict[str, Any] = {
        "dtype": "float32",
        "numel": 4,
        "done": True,
        "at": "",
        "since_ns": number,
    } | other
    return Collective(group=group, number=number, op=name, **values)


def message(sends: bool, peer: int | None, tag: int = 0, numel: int = 4) -> Message:
    return Message(
        group="0", sends=sends, peer=peer, tag=tag, dtype="float32", numel=numel, at="", since_ns=1
    )


def records(*of_ranks: list[Collective], **other: Any) -> dict[int, Record]:
    return {
        rank: Record(collectives=tuple(ops), groups=GROUPS, **other)
        for rank, ops in enumerate(of_ranks)
    }


def said(*of_ranks: list[Collective], ended: bool = True) -> str | None:
    found = divergence(records(*of_ranks), ended=ended)
    return None if found is None else str(found)


def test_the_same_sequence_is_none() -> None:
    same = [op(1), op(2, "barrier", numel=None, dtype="")]
    assert said(same, same, same) is None


@pytest.mark.parametrize(
    "change",
    [{"name": "all_gather"}, {"numel": 5}, {"dtype": "float16"}],
    ids=["operation", "size", "dtype"],
)
def test_the_first_place_and_the_odd_ranks_are_told(change: dict[str, Any]) -> None:
    same = [op(1), op(2), op(3)]
    found = divergence(
        records(same, [op(1), op(2, **change), op(3, "broadcast")], same), ended=True
    )
    assert found is not None
    assert found.what == "2nd collective of group 0 (ranks 0, 1 and 2)"
    assert found.ranks == (1,)
    assert found.expected == "ranks 0 and 2: all_reduce of 4 float32"


def test_lines_that_call_it_and_times_are_no_difference() -> None:
    assert said([op(1, at="a.py:1")], [op(1, at="b.py:2")], [op(1, since_ns=9)]) is None


def test_a_rank_that_is_behind_differs_only_once_all_have_ended() -> None:
    ahead, behind = [op(1), op(2)], [op(1)]
    assert said(ahead, ahead, behind, ended=False) is None
    told = said(ahead, ahead, behind)
    assert told is not None and "rank 2: none; ranks 0 and 1: all_reduce" in told


def test_what_the_recorder_has_forgotten_is_not_compared() -> None:
    assert said([op(2), op(3)], [op(1, "barrier"), op(2), op(3)], [op(3)]) is None


def test_groups_of_one_name_and_other_ranks_are_apart() -> None:
    one = Record(collectives=(op(1, group="1"),), groups={"1": (0, 1)})
    two = Record(collectives=(op(1, "barrier", group="1"),), groups={"1": (2, 3)})
    assert divergence({0: one, 1: one, 2: two, 3: two}, ended=True) is None


def exchanged(first: list[Message], second: list[Message], **other: Any) -> str | None:
    groups = {"0": (0, 1)}
    pair = {
        rank: Record(messages=tuple(messages), groups=groups, **other)
        for rank, messages in enumerate((first, second))
    }
    found = divergence(pair, ended=True)
    return None if found is None else str(found)


def test_messages_are_matched_by_pair_and_tag_in_whatever_order() -> None:
    sends, receives = (
        [message(True, 1, 7), message(True, 1, 8)],
        [message(False, 0, t) for t in (8, 7)],
    )
    assert exchanged(sends, receives) is None
    assert (
        exchanged([message(False, 1), message(True, 1)], [message(True, 0), message(False, 0)])
        is None
    )


def test_a_message_that_nobody_receives_or_of_another_size_is_told() -> None:
    told = exchanged([message(True, 1, 3)], [])
    assert told is not None and "1st message from rank 0 to rank 1 in group 0" in told
    assert "rank 1 receives none" in told
    assert exchanged([message(True, 1)], [message(False, 0, numel=8)]) is not None


def test_messages_that_cannot_be_known_whole_are_not_judged() -> None:
    assert exchanged([message(True, 1)], [message(False, None)]) is None
    assert exchanged([message(True, 1)], [], asked_for={"0": 3}) is None  # compiled ones: not seen


def test_what_each_waits_in_is_said() -> None:
    pending = Record(collectives=(op(1), op(2, "barrier", numel=None, dtype="", done=False)))
    done = Record(collectives=(op(1),), groups=GROUPS)
    assert collectives.waiting({0: pending, 1: done, 2: Record()}) == {
        0: "waits in barrier, the 2nd of group 0",
        1: "last did all_reduce of 4 float32, the 1st of group 0 (ranks 0, 1 and 2)",
        2: "has begun no collective",
    }


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"collectives": [{"x": 1}]}), "null"])
def test_a_record_that_the_program_has_spoilt_is_none(tmp_path: Path, text: str) -> None:
    collectives.record_file(tmp_path, 0).write_text(text)
    assert collectives.read(tmp_path, [0, 1]) == {}
