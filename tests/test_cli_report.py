"""The triage table: its order, and what it shows and prints as data."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from attnfuzz.fuzz.report.tables import SEVERITY, Row, Totals, triage, triage_json, worst_first
from attnfuzz.generators.model.outcome import FailureKind

WRONG = Row(
    id="b1", kind="wrong_result", layer="inductor", title="out is wrong", state="done",
    runs=5, failures=5, repro_lines=17, occurrences=3, where="corpus/b1-out",
)  # fmt: skip
CRASH = replace(WRONG, id="b2", kind="crash", title="SIGSEGV in flex")
KNOWN = replace(WRONG, id="b3", known_issue="pytorch#139548", occurrences=9)
FLAKY = replace(WRONG, id="b4", failures=3, occurrences=7)
OFTEN = replace(WRONG, id="b5", occurrences=8)
COMPILE = replace(WRONG, id="b6", kind="compile_error", title="[bold]CppCompileError[/bold]")
ORDER = [CRASH, OFTEN, WRONG, FLAKY, KNOWN, COMPILE]
TOTALS = Totals(shards=2, executed=1200, by_status={"passed": 1000, "failed": 40, "rejected": 160})


def text(rows: list[Row], apart: Sequence[Row] = ()) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(triage(TOTALS, rows, apart, "campaigns/night"))
    return out.getvalue()


def test_every_kind_has_its_place() -> None:
    assert set(SEVERITY) == {kind.value for kind in FailureKind}


def test_what_its_script_does_not_show_is_last() -> None:
    row = Row(id="a", kind="wrong_result", layer=None, title="", state="done", severity=90)
    scripts = ("0/3", "3/3", None, "0/0")
    rows = [replace(row, id=str(n), script_runs=runs) for n, runs in enumerate(scripts)]
    assert [one.id for one in worst_first(rows)] == ["1", "2", "3", "0"]


def test_worst_first_new_before_known_reliable_before_flaky() -> None:
    for seed in range(20):
        shuffled = random.Random(seed).sample(ORDER, len(ORDER))
        assert worst_first(shuffled) == ORDER


def test_the_table_tells_all_of_a_bucket() -> None:
    shown = text([KNOWN])
    for word in (
        "b3",
        "wrong_result",
        "inductor",
        "5/5",
        "17",
        "9",
        "pytorch#139548",
        "out is wrong",
    ):
        assert word in shown
    assert "1,200 programs in 2 shards" in shown
    assert "0 new, 1 known" in shown


def test_a_title_is_never_taken_for_markup() -> None:
    assert "[bold]CppCompileError[/bold]" in text([COMPILE])


def test_a_campaign_without_findings_says_so() -> None:
    assert "nothing failed" in text([])


def test_what_is_flaky_is_kept_apart_and_not_dropped() -> None:
    lonely = replace(FLAKY, id="abcdef", state="flaky", failures=1, runs=20)
    shown = text([WRONG], [lonely])
    assert shown.index("b1") < shown.index("in no bucket") < shown.index("abcdef")
    assert "1 new, 0 known" in shown


def test_json_has_the_same_order_and_spells_out_flaky() -> None:
    data = json.loads(json.dumps(triage_json(TOTALS, [WRONG, FLAKY, CRASH], [], "d")))
    assert [bucket["id"] for bucket in data["buckets"]] == ["b2", "b1", "b4"]
    assert [bucket["flaky"] for bucket in data["buckets"]] == [False, False, True]
    assert data["executed"] == 1200
