"""Mutated corpora and campaigns against the commands that read them: `benchmarks/hostile.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.hostile import judged
from benchmarks.hostile_mutations import CALL
from benchmarks.hostile_watch import StubPool, Watch

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_nothing_that_is_tampered_with_is_executed_hangs_or_ends_in_a_traceback() -> None:
    script = ["benchmarks/hostile.py", "--count", "500", "--seed", "2026", "--real", "0"]
    done = subprocess.run(
        [sys.executable, *script], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    assert "500 commands, 0 wrong" in done.stdout


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("os.system", ("id",)),
        ("subprocess.Popen", ("id", ["id"], None, None)),
        ("socket.connect", (None, ("127.0.0.1", 1))),
        ("import", ("no_such_module_of_ours", None, None, None, None)),
        ("exec", (compile(CALL, "<string>", "exec"),)),
        ("exec", (compile(f"def f():\n    {CALL}", "<string>", "exec"),)),
        ("open", ("/nowhere/x", "w", os.O_WRONLY)),
        ("os.remove", ("/nowhere/x", -1)),
        ("ctypes.dlopen", ("libc.so.6",)),
    ],
)
def test_the_watch_sees_what_must_not_happen(event: str, arguments: tuple[object, ...]) -> None:
    watch = Watch(on=True, writable=("/somewhere",))
    watch.hook(event, arguments)
    assert len(watch.seen) == 1


def test_the_watch_lets_pass_what_reading_does(tmp_path: Path) -> None:
    watch = Watch(on=True, writable=(str(tmp_path),))
    for event, arguments in (
        ("import", ("json", None, None, None, None)),
        ("open", ("/etc/passwd", "r", os.O_RDONLY)),
        ("open", (str(tmp_path / "x"), "w", os.O_WRONLY)),
        ("exec", (compile("x = 1", "<string>", "exec"),)),
    ):
        watch.hook(event, arguments)
    assert watch.seen == []


def test_what_was_text_and_is_rendered_as_code_is_seen() -> None:
    watch = Watch(on=True)
    pool = StubPool(watch, "cpu")
    pool.inspect(f"x = {CALL!r}")
    assert watch.seen == []
    pool.inspect(f"x = {CALL}")
    assert watch.seen
    with pytest.raises(SyntaxError):
        pool.inspect("x = 'it's'")


@pytest.mark.parametrize(
    ("code", "told", "said", "ended"),
    [
        (2, "", "attnfuzz: x: expected y\n", "refused"),
        (2, "", "attnfuzz: x\nmore\n", "defect"),
        (2, "", "x\n", "defect"),
        (70, "", "Traceback (most recent call last):\n", "defect"),
        (0, "x\n", "", "accepted"),
        (139, "", "", "defect"),
    ],
)
def test_only_one_sentence_is_a_refusal(code: int, told: str, said: str, ended: str) -> None:
    assert judged(code, told, said, as_json=False)[0] == ended
