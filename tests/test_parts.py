"""What the watchdogs of several nodes say to each other, without any node."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import pytest

from attnfuzz.actors.child.outcomes import failure
from attnfuzz.actors.sandbox import parts, ports
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.parts import Link, Order, State, nodes_said, split
from attnfuzz.actors.sandbox.together import lost_each_other
from attnfuzz.actors.sandbox.watchdog import ALONE_S, Watchdog


@pytest.mark.parametrize(
    ("ranks", "nodes", "expected"),
    [
        (4, 2, [(0, 1), (2, 3)]),
        (3, 2, [(0, 1), (2,)]),
        (2, 3, [(0,), (1,)]),
        (7, 3, [(0, 1, 2), (3, 4), (5, 6)]),
    ],
)
def test_ranks_are_split_over_the_nodes_in_order(
    ranks: int, nodes: int, expected: list[tuple[int, ...]]
) -> None:
    assert split(ranks, nodes) == expected


def test_which_ranks_were_where_is_said() -> None:
    assert nodes_said(["a", "b", "c"], [(0, 1), (2,)]) == "ranks 0 and 1 on a; rank 2 on b"


def test_an_order_is_for_one_run_and_may_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    link = Link()
    link.begin("first")
    assert link.answer("second", Order.END) == State()
    assert link.order is Order.PREPARE
    link.state = State(ready=True)
    assert link.answer("first", Order.RUN).ready
    assert link.order is Order.RUN
    link.answer("second", Order.END)
    link.begin("second")
    assert link.order is Order.END and link.state == State()


def test_a_part_ends_where_its_leader_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    link = Link()
    link.begin("run")
    now[0] += parts.START_S  # the leader's zygote may take as long
    assert link.order is Order.PREPARE
    link.answer("run", Order.RUN)
    now[0] += parts.LEADER_S
    assert link.order is Order.RUN
    now[0] += 1.0
    assert link.order is Order.END


def test_a_port_is_held_at_all_addresses() -> None:
    with ports.reserved() as port, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.2", port))
        with socket.socket() as store:  # as torch's
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("", port))
            store.listen()


LOST = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]"


def outcome(message: str | None) -> dict[str, Any]:
    if message is None:
        return {"status": "passed", "failure": None}
    raised = {"type": "RuntimeError", "message": message, "chain": [], "frames": []}
    return {"status": "failed", "failure": failure("runtime_error", "eager", raised=raised)}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [([LOST, LOST], True), ([LOST, None], False), ([LOST, "lost its way"], False), ([], False)],
)
def test_ranks_that_only_lost_each_other_are_no_failure(
    messages: list[str | None], expected: bool
) -> None:
    assert lost_each_other(dict(enumerate(map(outcome, messages)))) is expected


def test_all_sleep_only_where_those_elsewhere_do() -> None:
    watchdog = Watchdog(Deadlines(idle=6.0), 100.0)
    watchdog.look([], 108.0)
    assert watchdog.sleeping() is not None
    watchdog.hear(asleep=5.0, kept=3.0)
    assert watchdog.sleeping() is None and watchdog.kept_in_all == 3.0
    watchdog.hear(asleep=7.0, kept=1.0)
    assert watchdog.sleeping() is not None and watchdog.kept_in_all == 3.0
    assert watchdog.end == 100.0 + Deadlines().build + 3.0


def test_ranks_are_alone_once_all_have_slept_since_one_has_failed() -> None:
    watchdog = Watchdog(Deadlines(), 100.0)
    watchdog.look([os.getpid()], 100.5)  # this process works
    watchdog.look([], 101.0)
    watchdog.look([], 110.0)
    assert not watchdog.deserted
    watchdog.miss(108.0)
    assert not watchdog.deserted
    watchdog.look([], 108.0 + ALONE_S)
    assert watchdog.deserted
    watchdog.hear(asleep=1.0, kept=0.0)
    assert not watchdog.deserted
