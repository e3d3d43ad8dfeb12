"""What processes do: real ones that wait, work, or are kept from working."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from attnfuzz.actors.sandbox import confine
from attnfuzz.actors.sandbox.activity import KEPT, POLLING, Activity, Thread
from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.generators.model.outcome import DEADLINE, FailureKind
from tests.support.sources import source

PAUSE_S = 0.3

WAITS = {
    "for an event": "import threading; print(flush=True); threading.Event().wait()",
    "for input": "import sys; print(flush=True); sys.stdin.read()",
    "and polls": "import time; print(flush=True)\nwhile True: time.sleep(0.1)",
    "as it is stopped": "import os; print(flush=True); os.kill(os.getpid(), 19)",
    "with a child": "import os, time; os.fork(); print(flush=True); time.sleep(600)",
}
WORKS = {
    "in Python": "print(flush=True)\nwhile True: pass",
    "in short pieces": """
import threading, time
print(flush=True)
while True:
    until = time.monotonic() + 0.02
    while time.monotonic() < until: pass
    time.sleep(0.02)
""",
    "by threads that come and go": """
import threading, time
print(flush=True)
while True:
    thread = threading.Thread(target=time.sleep, args=(0.1,))
    thread.start()
    thread.join()
""",
}


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program, and returns when it has printed a line."""
    started = []

    def begin(body: str, *cpus: int) -> subprocess.Popen[str]:
        where = f"import os; os.sched_setaffinity(0, {list(cpus)})\n" if cpus else ""
        process = subprocess.Popen(
            [sys.executable, "-c", where + body],
            preexec_fn=lambda: confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield begin
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def longest(pid: int, looks: int = 5) -> float:
    """The longest time, in seconds, that `pid` was seen idle for."""
    activity, found = Activity(time.monotonic()), [0.0]
    for _ in range(looks):
        time.sleep(PAUSE_S)
        activity.look([pid], time.monotonic())
        found.append(activity.asleep)
    return max(found)


@pytest.mark.parametrize("body", WAITS.values(), ids=WAITS.keys())
def test_what_waits_is_idle(start: Callable[..., subprocess.Popen[str]], body: str) -> None:
    # A loaded machine may see it get there only after the first looks.
    assert longest(start(body).pid, looks=10) >= 3 * PAUSE_S


@pytest.mark.parametrize("body", WORKS.values(), ids=WORKS.keys())
def test_what_works_is_not(start: Callable[..., subprocess.Popen[str]], body: str) -> None:
    assert longest(start(body).pid) == 0.0


def test_what_is_kept_from_the_cpu_is_not_idle(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    # All of one session, as Linux may share out the CPUs by session: it gets less than 1% of one.
    body = """
import os
print(flush=True)
for _ in range(3):
    if not os.fork():
        while True: pass
os.nice(19)
while True: pass
"""
    pid = start(body, min(os.sched_getaffinity(0))).pid
    before = psutil.Process(pid).cpu_times().user
    # How long it has waited is told when it gets its turn, which may be after a look.
    assert longest(pid) < 3 * PAUSE_S
    assert psutil.Process(pid).cpu_times().user - before < POLLING * 5 * PAUSE_S


@pytest.mark.parametrize(
    ("now", "works"),
    [
        (Thread("R", 1.001, 1.92, 208), False),  # gloo's, on two CPUs with four busy processes
        (Thread("R", 1.096, 2.888, 135), True),  # a compiler beside it
        (Thread("R", 1.01, 2.97, 104), True),  # one with less than 1% of a CPU
        (Thread("R", 1.0, 1.0, 100), True),  # waits for its turn all the time
        (Thread("D", 1.0, 1.0, 101), True),
        (Thread("S", 1.0, 1.0, 100), False),
    ],
)
def test_what_a_thread_on_a_loaded_machine_does_in_two_seconds(now: Thread, works: bool) -> None:
    assert now.worked_since(Thread("R", 1.0, 1.0, 100), 2.0) is works


def test_who_waits_for_the_disk_is_at_work() -> None:
    waits = Thread("D", 1.0, 1.0, 100)
    assert waits.worked_since(waits, 2.0)


def test_one_that_works_keeps_the_others_from_being_idle(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    waits, works = start(WAITS["for an event"]).pid, start(WORKS["in Python"]).pid
    activity = Activity(time.monotonic())
    for _ in range(5):
        time.sleep(PAUSE_S)
        activity.look([waits, works], time.monotonic())
        assert activity.asleep == 0.0


def test_what_has_been_idle_and_works_again_begins_anew(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    process = start("import sys; print(flush=True); sys.stdin.readline()\nwhile True: pass")
    assert longest(process.pid) > 0.0
    activity = Activity(time.monotonic())
    for _ in range(3):
        time.sleep(PAUSE_S)
        activity.look([process.pid], time.monotonic())
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    time.sleep(PAUSE_S)
    activity.look([process.pid], time.monotonic())
    assert activity.asleep == 0.0


def test_it_tells_for_how_long_others_have_the_cpu(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    first = min(os.sched_getaffinity(0))
    others = [start(WORKS["in Python"], first) for _ in range(3)]
    works, waits = start(WORKS["in Python"], first), start(WAITS["for an event"], first)
    began = time.monotonic()
    of = {process.pid: Activity(began) for process in (works, waits, others[0])}
    # What it worked and waited before counts too: it has nothing to compare with at first.
    for pid, activity in of.items():
        activity.look([pid], began)
    before = {pid: activity.kept for pid, activity in of.items()}
    time.sleep(2.0)
    kept = {}
    for pid, activity in of.items():
        activity.look([pid], time.monotonic())
        kept[pid] = activity.kept - before[pid]
    assert kept[works.pid] > 1.0
    assert kept[waits.pid] < 0.1


@pytest.mark.parametrize(
    ("threads", "kept"),
    [
        ([Thread("R", 10.0, 0.0)], 0.0),
        ([Thread("R", 1.0, 9.0)], 9.0),
        ([Thread("R", 1.0, 9.0), Thread("R", 1.0, 9.0)], 9.0),  # on two of two CPUs
        ([Thread("R", 5.0, 5.0)] * 4, 0.0),  # which have both CPUs between them
        ([Thread("S", 0.0, 0.5), Thread("S", 0.0, 0.5)], 1.0),
        ([Thread("R", 5.0)], 0.0),  # Linux does not say
    ],
)
def test_who_waits_for_its_own_is_not_kept_by_others(
    monkeypatch: pytest.MonkeyPatch, threads: list[Thread], kept: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(
        "attnfuzz.actors.sandbox.activity._threads", lambda pids: dict(enumerate(threads))
    )
    activity = Activity(100.0)
    activity.look([], now=110.0)
    assert activity.kept == pytest.approx(kept)


def test_a_deadline_is_put_off_by_so_much_and_no_more() -> None:
    activity = Activity(0.0, kept=30.0)
    assert activity.allows(20.0) == 50.0
    assert activity.allows(20.0, kept_before=25.0) == 25.0
    assert activity.allows(1.0) == 1.0 + KEPT


@pytest.mark.slow
def test_what_sleeps_is_a_hang_before_its_deadline(sandbox: Sandbox) -> None:
    job = Job(deadlines=Deadlines(eager=60.0, idle=1.0))
    failure = sandbox.run(source("import threading; threading.Event().wait()"), job).failure
    assert failure is not None and failure.raised is not None
    assert failure.kind is FailureKind.HANG
    assert failure.raised.message == "all asleep in phase eager for 3 s"
    assert ("threading.py", "wait") in [(f.file, f.function) for f in failure.raised.frames]


@pytest.mark.slow
def test_what_sleeps_for_a_while_is_no_hang(sandbox: Sandbox) -> None:
    # 6 s in all, as eager attention runs twice.
    job = Job(deadlines=Deadlines(idle=1.8))
    outcome = sandbox.run(source("import time; time.sleep(3)"), job)
    assert outcome.status == "passed", outcome
    assert "asleep" in outcome.skipped["deadline"]


@pytest.mark.slow
def test_what_is_kept_from_the_cpus_has_longer(
    sandbox: Sandbox, start: Callable[..., subprocess.Popen[str]]
) -> None:
    for cpu in os.sched_getaffinity(0):
        for _ in range(3):
            start(WORKS["in Python"], cpu)
    body = """
import time
until = time.process_time() + 1
while time.process_time() < until: pass
"""  # twice, as eager attention runs twice: 8 s, of which it works 2
    outcome = sandbox.run(source(body), Job(deadlines=Deadlines(eager=5.0)))
    assert outcome.status == "passed", outcome
    assert outcome.cost.phases["eager"] > 5.0
    assert DEADLINE not in outcome.skipped
