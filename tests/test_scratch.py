"""A run's scratch folder, and what is cleaned up where the run is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from attnfuzz.actors.sandbox import procs, reaper
from attnfuzz.actors.sandbox.scratch import Scratch, ScratchError

ROOT = Path(__file__).resolve().parent.parent


def test_scratch_marks_processes_and_cleans_up(tmp_path: Path) -> None:
    before = dict(os.environ)
    with Scratch.create(tmp_path) as scratch:
        (scratch.root / "file").touch()
        sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    assert sleeper.wait() == -signal.SIGKILL
    assert not scratch.root.exists()
    assert dict(os.environ) == before
    scratch.close()


OWNER = """
import subprocess, sys
sys.path.insert(0, {root!r})
from attnfuzz.actors.sandbox import procs
from attnfuzz.actors.sandbox.scratch import Scratch
outer = Scratch.create({base!r})
scratch = Scratch.create({base!r})
sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
while not procs.marked("ATTNFUZZ_RUN", scratch.run_id):  # set a moment after its start
    pass
print(scratch.run_id, flush=True)
sys.stdin.read()
"""


def owner_in(base: Path) -> tuple[subprocess.Popen[str], str]:
    """A process that has two scratch folders in `base`, and the inner run's marker."""
    code = OWNER.format(root=str(ROOT), base=str(base))
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    return owner, owner.stdout.readline().strip()


def test_a_killed_owner_is_cleaned_up_after(tmp_path: Path) -> None:
    owner, run_id = owner_in(tmp_path)
    assert procs.marked("ATTNFUZZ_RUN", run_id) != []
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 30
    while list(tmp_path.iterdir()) or procs.marked("ATTNFUZZ_RUN", run_id):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def reapers_of(owner: subprocess.Popen[str]) -> list[psutil.Process]:
    every = psutil.Process(owner.pid).children(recursive=True)
    return [one for one in every if "reaper.py" in " ".join(one.cmdline())]


def test_a_killed_owner_whose_children_are_killed_too_is_cleaned_up_after(tmp_path: Path) -> None:
    owner, run_id = owner_in(tmp_path)
    children = psutil.Process(owner.pid).children()
    for one in (psutil.Process(owner.pid), *children):  # as Ray ends a worker
        one.kill()
    owner.wait()
    assert len(children) == 3  # two reapers that have forked, and the sleeper
    deadline = time.monotonic() + 30
    while list(tmp_path.iterdir()) or procs.marked("ATTNFUZZ_RUN", run_id):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_was_killed_with_its_reaper_is_cleaned_up_after_by_the_next(tmp_path: Path) -> None:
    owner, run_id = owner_in(tmp_path)
    with Scratch.create(tmp_path):
        assert len(list(tmp_path.iterdir())) == 3  # a live run is left alone
    reapers = reapers_of(owner)
    assert len(reapers) == 4  # each has forked one that outlives Ray's kill
    for one in reapers:
        one.kill()
    owner.kill()
    owner.wait()
    assert len(list(tmp_path.iterdir())) == 2 and procs.marked("ATTNFUZZ_RUN", run_id)
    with Scratch.create(tmp_path) as scratch:
        assert list(tmp_path.iterdir()) == [scratch.root]
        assert not procs.marked("ATTNFUZZ_RUN", run_id)


def test_a_folder_without_a_lock_is_no_runs_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "attnfuzz-0123abcd"
    left.mkdir()
    with Scratch.create(tmp_path):
        assert left.exists()
    monkeypatch.setattr("attnfuzz.actors.sandbox.scratch.UNLOCKED_S", 0.0)
    with Scratch.create(tmp_path):
        assert not left.exists()


def test_folders_that_come_back_are_removed_too(tmp_path: Path) -> None:
    """What is between a fork and an exec has no marker yet, and begins after the others died."""
    again = "for i in 1 2 3 4 5 6 7 8; do sleep 0.05; mkdir -p $0/ray; done"
    unmarked = {name: value for name, value in os.environ.items() if name != reaper.MARKER}
    with Scratch.create(tmp_path) as scratch:
        late = subprocess.Popen(["sh", "-c", again, scratch.root], env=unmarked)
    late.wait()
    assert not scratch.root.exists()


def test_a_base_that_is_no_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ScratchError, match=r"none: cannot make a scratch folder there: No such"):
        Scratch.create(tmp_path / "none")
