"""What is shown is a pure function of a snapshot."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from attnfuzz.fuzz.report.live import BucketView, Snapshot, clock, line, view, watching

BUCKET = BucketView(
    id="1a2b3c4d",
    kind="wrong_result",
    layer="inductor",
    title="wrong: `out` of flex attention",
    state="done",
    fails="5/5",
    seen=7,
)
SNAPSHOT = Snapshot(
    elapsed_s=65.0,
    left_s=3535.0,
    executed=1234,
    passed=1200,
    rejected=30,
    failed=4,
    shards=60,
    rate=2.5,
    workers=2,
    busy=2,
    cpu=0.97,
    doing="finding",
    pending=1,
    buckets=(BUCKET, replace(BUCKET, id="9f9f9f9f", state="minimizing", seen=1)),
)


TIMES = [(0, "0:00:00"), (65.4, "0:01:05"), (7325, "2:02:05")]


@pytest.mark.parametrize(("seconds", "text"), TIMES)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_line_tells_everything_once() -> None:
    assert line(SNAPSHOT) == (
        "0:01:05 (0:58:55 left) | 1,234 programs (2.5/s): 1,200 passed, 30 rejected, 4 failed | "
        "1 bucket, 1 pending | 2/2 workers, CPU 97% | finding"
    )


def test_defects_are_not_hidden() -> None:
    assert "3 defects of attnfuzz" in line(replace(SNAPSHOT, defects=3))
    assert "defects" not in line(SNAPSHOT)


def rendered(snapshot: Snapshot) -> str:
    text = io.StringIO()
    Console(file=text, width=120, color_system=None).print(view(snapshot))
    return text.getvalue()


def test_what_is_known_is_counted_apart() -> None:
    known = replace(BUCKET, id="5c5c5c5c", state="known", known_issue="shipped: 5c5c5c5c")
    assert "1 bucket, 1 known, 1 pending" in line(
        replace(SNAPSHOT, buckets=(*SNAPSHOT.buckets, known))
    )


def test_of_what_is_pending_the_known_is_told() -> None:
    several = replace(SNAPSHOT, pending=5, pending_known=3)
    assert "5 pending (3 of them known) |" in line(several)
    assert "5 pending (3 of them known, one for 0:02:05) |" in line(replace(several, waits_s=125))


def test_workers_on_several_nodes_are_told() -> None:
    assert " workers, CPU" in line(SNAPSHOT)
    assert " workers (1 on several nodes), CPU" in line(replace(SNAPSHOT, spread=1))


def test_the_view_shows_counts_and_buckets() -> None:
    text = rendered(SNAPSHOT)
    for part in ("2.5 programs/s", "1,200 passed", "1a2b3c4d", "minimizing", "5/5", "0:58:55 left"):
        assert part in text


def test_the_view_shows_the_newest_buckets_and_says_how_many_it_hides() -> None:
    many = tuple(replace(BUCKET, id=f"{place:08x}") for place in range(40))
    text = rendered(replace(SNAPSHOT, buckets=many))
    assert "00000027" in text
    assert "00000000" not in text
    assert "15 earlier ones not shown" in text


def test_a_title_is_text_and_not_markup() -> None:
    text = rendered(replace(SNAPSHOT, buckets=(replace(BUCKET, title="[red]out[/red] [B, H]"),)))
    assert "[red]out[/red] [B, H]" in text


def snapshots() -> list[Snapshot]:
    return [replace(SNAPSHOT, elapsed_s=second) for second in (0.0, 0.5, 9.9, 10.0, 12.0, 20.5)]


def test_without_a_terminal_a_line_every_ten_seconds_and_the_last() -> None:
    out = io.StringIO()
    with watching(stream=out) as show:
        for snapshot in [*snapshots(), replace(SNAPSHOT, elapsed_s=21.0)]:
            show(snapshot)
    shown = [text.split(" ")[0] for text in out.getvalue().splitlines()]
    assert shown == ["0:00:00", "0:00:10", "0:00:20", "0:00:21"]


def test_json_lines_hold_the_whole_snapshot() -> None:
    out = io.StringIO()
    with watching("json", out) as show:
        show(SNAPSHOT)
    told = json.loads(out.getvalue())
    assert told["executed"] == 1234
    assert told["buckets"][0]["id"] == "1a2b3c4d"
