"""What is printed of titles, messages and scripts is text, whatever is in it."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfuzz.corpus.case import find_cases, read_bucket, read_case, write_bucket, write_case
from attnfuzz.fuzz.report.console import PlainConsole
from attnfuzz.fuzz.report.escape import code, fenced, markdown, plain
from attnfuzz.fuzz.report.live import BucketView, Snapshot, data, line, view

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SHIPPED = Path(__file__).resolve().parent.parent / "corpus" / "cases"
STEERS = "\x1b[2J\x1b]0;owned\x07 a\bb\rc \x9b31m \u202egnp.exe \u2066x\u2069 \x00 \x7f"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("`|\\<>@#*_\n\r\x1b"))


def steers(text: str) -> set[str]:
    """The characters that a terminal does not just print."""
    return {one for one in text if not one.isprintable() and one not in "\n\t"}


@given(TEXTS)
def test_plain_text_steers_nothing_and_printable_text_stays(text: str) -> None:
    assert not steers(plain(text))
    assert plain(plain(text)) == plain(text)
    if text.isprintable():
        assert plain(text) == text


def test_what_steers_is_spelled_out() -> None:
    assert plain("\x1b[31m\u202e\x9b\r") == r"\x1b[31m\u202e\x9b\r"
    assert plain("a\r\nb\tc") == "a\nb\tc"
    assert plain("\udcff") == r"\udcff"


@given(TEXTS, TEXTS)
def test_nothing_closes_a_fence_but_its_end(before: str, after: str) -> None:
    text = f"{before}\n```\n{after}"
    first, *inner, last = fenced(text, "python").split("\n")
    fence = first.removesuffix("python")
    assert set(fence) == {"`"} and len(fence) >= 3 and last == fence
    assert all(fence not in one for one in inner)


@given(TEXTS)
def test_code_is_one_line_that_its_ticks_hold_and_no_cell_ends_in(text: str) -> None:
    told = code(text)
    assert "\n" not in told and not re.search(r"(?<!\\)\|", told)
    if told:
        ticks = re.match("`+", told)
        assert ticks is not None and told.endswith(ticks[0])
        assert ticks[0] not in told[len(ticks[0]) : -len(ticks[0])]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<img src=x onerror=alert(1)>", r"\<img src=x onerror=alert(1)\>"),
        ("[x](javascript:alert(1))", r"\[x\](javascript:alert(1))"),
        ("a | b", r"a \| b"),
        ("`a` **b** __init__ in_a_word", r"\`a\` \*\*b\*\* \_\_init\_\_ in_a_word"),
        ("one\n# two", "one # two"),
        ("# one", r"\# one"),
        ("1. one", r"\1. one"),
        ("@somebody #12", "@<!-- -->somebody #<!-- -->12"),
        ("2.13.0 of a-b", "2.13.0 of a-b"),
    ],
)
def test_prose_is_only_characters(text: str, told: str) -> None:
    assert markdown(text) == told
    assert markdown(markdown(text)) == told


@given(TEXTS)
def test_a_console_takes_text_for_text(text: str) -> None:
    out = io.StringIO()
    PlainConsole(file=out, width=80, force_terminal=False).print(f"[bold]{text}[/]", text)
    assert not steers(out.getvalue()) and "[bold]" in out.getvalue()


def test_the_live_view_is_text() -> None:
    bucket = BucketView(id="x", kind=STEERS, layer="[/]", title=STEERS, state="[bold]")
    snapshot = Snapshot(
        elapsed_s=1, left_s=1, executed=1, passed=1, rejected=0, failed=0, shards=1, rate=1,
        workers=1, busy=1, cpu=0.5, doing=STEERS, buckets=(bucket,),
    )  # fmt: skip
    out = io.StringIO()
    PlainConsole(file=out, width=200).print(view(snapshot))
    assert not steers(out.getvalue() + line(snapshot) + data(snapshot))
    assert "[bold]" in out.getvalue() and "[/]" in out.getvalue()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of one case, everything in which that may be text steers and marks up."""
    folder = find_cases([SHIPPED])[0]
    case, bucket = read_case(folder), read_bucket(folder.parent)
    nasty = f"{STEERS} [bold]x[/bold] [/] ``` <img src=x> | @you"
    failure = replace(case.failure, evidence={nasty: f"{nasty}\n{STEERS}"}, oracle=nasty)
    if case.failure.raised is not None:
        raised = replace(case.failure.raised, message=nasty, type=nasty)
        failure = replace(failure, raised=raised)
    changed = replace(
        case, failure=failure, repro=f'"""{STEERS}"""\n```\n# heading\n',
        environment={"torch": STEERS, nasty: nasty}, preload=(),
    )  # fmt: skip
    bucket = replace(bucket, title=nasty, known_issue=nasty, aliases=(nasty,))
    write_bucket(tmp_path, bucket)
    write_case(tmp_path, bucket, changed)
    return tmp_path


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_no_command_lets_a_corpus_steer_the_terminal(
    attnfuzz: Command, corpus: Path, form: list[str]
) -> None:
    (folder,) = find_cases([corpus])
    name = folder.parent.name.partition("-")[0]
    shown = attnfuzz("show", name, "--dir", corpus, *form)
    assert shown.returncode == 0, shown.stderr
    assert not steers(shown.stdout + shown.stderr)
    if form == ["--json"]:
        told = json.loads(shown.stdout)
        assert told["known_issue"].startswith(STEERS) and "[bold]" in told["title"]
    if form != ["--markdown"]:
        listed = attnfuzz("triage", corpus, *form)
        assert listed.returncode == 0 and not steers(listed.stdout)


def test_an_issue_holds_no_markdown_of_the_corpus(attnfuzz: Command, corpus: Path) -> None:
    name = find_cases([corpus])[0].parent.name.partition("-")[0]
    told = attnfuzz("show", name, "--dir", corpus, "--markdown").stdout
    outside, fence = [], ""
    for one in told.splitlines():
        ticks = re.match("`{3,}", one)
        if fence:
            fence = "" if one == fence else fence
        elif ticks:
            fence = ticks[0]
        else:
            outside.append(one)
    assert not fence
    assert [one for one in outside if one.startswith("#")][1:] == [
        "## To reproduce", "## What happens", "## Versions",
    ]  # fmt: skip
    assert not any(re.search(r"(?<!\\)<img|@you", one) for one in outside)


def test_a_sentence_names_a_file_whatever_its_name_is(attnfuzz: Command, tmp_path: Path) -> None:
    name = b"\x1b[31mx\xff\n.yaml"
    (Path(tmp_path) / Path(name.decode("utf-8", "surrogateescape"))).write_text("[]")
    for form in ([], ["--json"]):
        result = attnfuzz("render", str(tmp_path / name.decode("utf-8", "surrogateescape")), *form)
        assert result.returncode == 2, result.stderr
        assert not steers(result.stdout + result.stderr)
        assert len((result.stdout + result.stderr).splitlines()) == 1
