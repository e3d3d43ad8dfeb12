"""What a crash is called, and that its stack is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.watchdog import GLANCE_S
from attnfuzz.generators.model.outcome import FailureKind, Phase
from tests.support.outcomes import failing, functions
from tests.support.sources import source

JOB = Job()
CRASH = (FailureKind.CRASH, Phase.EAGER)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def sandbox(undisturbed_sandbox: Sandbox) -> Sandbox:
    return undisturbed_sandbox


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE"])
def test_a_fatal_signal_is_a_crash(sandbox: Sandbox, name: str) -> None:
    outcome = sandbox.run(source(f"import os, signal; os.kill(os.getpid(), signal.{name})"), JOB)
    assert failing(outcome) == CRASH
    assert outcome.failure is not None and outcome.failure.signal == name
    assert ("<program>", "attention") in functions(outcome)


def test_a_null_pointer_is_told_with_its_native_frames(sandbox: Sandbox) -> None:
    outcome = sandbox.run(source("import ctypes; ctypes.string_at(0)"), JOB)
    assert failing(outcome) == CRASH
    frames = functions(outcome)
    assert frames.index(("<program>", "attention")) < frames.index(
        ("ctypes/__init__.py", "string_at")
    )
    assert any(".so" in file for file, _ in frames), outcome
    assert not any("zygote" in file or "child" in file for file, _ in frames)


def test_the_native_frames_of_a_crash_are_of_the_thread_that_crashed(sandbox: Sandbox) -> None:
    body = """
    import ctypes, threading
    one = threading.Thread(target=ctypes.string_at, args=(0,))
    one.start()
    one.join()
"""
    outcome = sandbox.run(source(body), JOB)
    assert failing(outcome) == CRASH
    assert any("ffi" in file for file, _ in functions(outcome)), outcome


def test_a_crash_whose_native_frames_were_not_printed_is_tried_again(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    silent_at_first = f"""
    import ctypes, faulthandler, pathlib
    mark = pathlib.Path({str(tmp_path / "once")!r})
    if not mark.exists():
        mark.touch()
        faults = open("faults.txt", "a")
        torch._C._set_print_stack_traces_on_fatal_signal(False)
        faulthandler.disable()
        faulthandler.enable(faults)
    ctypes.string_at(0)
"""
    outcome = sandbox.run(source(silent_at_first), JOB)
    assert failing(outcome) == CRASH
    assert any(".so" in file for file, _ in functions(outcome)), outcome


def test_a_crash_is_let_print_its_stack_for_as_long_as_more_comes(sandbox: Sandbox) -> None:
    """As on a machine that has much else to do."""
    slowly = f"""
    import ctypes, sys, time
    with open("faults.txt", "a") as faults:
        faults.write("Fatal Python error: Segmentation fault\\n")
    for _ in range({round(2 * GLANCE_S / 0.5)}):
        print("more", file=sys.stderr, flush=True)
        time.sleep(0.5)
    ctypes.string_at(0)
"""
    outcome = sandbox._attempt(source(slowly), JOB, native=False)
    assert failing(outcome) == CRASH
    assert any("ffi" in file for file, _ in functions(outcome)), outcome


CORRUPT_THE_HEAP = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = [libc.malloc(size) for size in range(24, 2048, 8)]
    for block in blocks:
        ctypes.memset(block - 8, 0x41, 24)
    for block in blocks:
        libc.free(ctypes.c_void_p(block))
    x = [bytearray(size) for size in range(1, 4096, 8)]
"""


def test_a_corrupt_heap_is_a_crash_though_the_crash_may_hang(sandbox: Sandbox) -> None:
    outcome = sandbox.run(source(CORRUPT_THE_HEAP), JOB)
    assert failing(outcome) == CRASH
    assert outcome.failure is not None
    assert outcome.failure.signal in ("SIGABRT", "SIGSEGV")
