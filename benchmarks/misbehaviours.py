"""What a program may do to whoever runs it: one row each, with what it must be called.

`tests/test_misbehaviour.py` runs every row; `reliability.py` prints the table.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.generators.model.outcome import FailureKind, Outcome

PASSED = "passed"
HANG = FailureKind.HANG.value
CRASH = FailureKind.CRASH.value
RAISED = FailureKind.RUNTIME_ERROR.value
MEMORY = FailureKind.OUT_OF_MEMORY.value

BRIEF = Job(deadlines=Deadlines(eager=1.0, exit=1.0))
"""For what never ends: its deadline need not be long to be missed."""


@dataclass(frozen=True)
class Misbehaviour:
    """`body` is executed inside the attention function; `called` is the right word for it."""

    name: str
    called: str
    body: str

    @property
    def job(self) -> Job:
        return BRIEF if self.called == HANG else Job()

    @property
    def source(self) -> str:
        """A whole program, whose result is right where `body` lets it come that far."""
        return program(self.body)


def called(outcome: Outcome) -> str:
    """The word for an outcome: its status, or the kind of its failure."""
    return outcome.failure.kind.value if outcome.failure else outcome.status


PROGRAM = """
import torch


def inputs():
    g = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 1, 4, 4, generator=g) for _ in range(3))


def reference(q, k, v):
    return torch.softmax(q @ k.mT * 0.5, -1) @ v


def attention(q, k, v):
    BODY
    return reference(q, k, v)


def run(fn, args):
    return {"out": fn(*args)}
"""


def program(body: str) -> str:
    """A program whose attention function runs `body` before it computes the right result."""
    indented = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return PROGRAM.replace("    BODY\n", f"{indented}\n")


WELL_BEHAVED = Misbehaviour("behaves", PASSED, "pass")

MISBEHAVIOURS = (
    Misbehaviour("spins in Python", HANG, "while True: pass"),
    Misbehaviour(
        "spins in C, holding the GIL", HANG, "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')"
    ),
    Misbehaviour(
        "deadlocks",
        HANG,
        """
        import threading
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
        """,
    ),
    Misbehaviour("waits at exit", HANG, "import atexit, time; atexit.register(time.sleep, 1000)"),
    Misbehaviour(
        "ignores SIGTERM",
        HANG,
        """
        import signal, time
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(1000)
        """,
    ),
    Misbehaviour("stops itself", HANG, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"),
    Misbehaviour(
        "waits in a collective",
        HANG,
        """
        import os, torch.distributed as dist
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=2)
        """,
    ),
    Misbehaviour("segfaults", CRASH, "import ctypes; ctypes.string_at(0)"),
    Misbehaviour("aborts", CRASH, "import os; os.abort()"),
    Misbehaviour(
        "divides by zero", CRASH, "import os, signal; os.kill(os.getpid(), signal.SIGFPE)"
    ),
    Misbehaviour(
        "executes an illegal instruction",
        CRASH,
        """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\\x0f\\x0b")
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        """,
    ),
    Misbehaviour("exits with 0 before the result", CRASH, "import os; os._exit(0)"),
    Misbehaviour("raises SystemExit", RAISED, "raise SystemExit(0)"),
    Misbehaviour("raises KeyboardInterrupt", RAISED, "raise KeyboardInterrupt"),
    Misbehaviour(
        "raises a BaseException of its own",
        RAISED,
        """
        class Mine(BaseException):
            pass
        raise Mine("mine")
        """,
    ),
    Misbehaviour(
        "raises what cannot be printed",
        RAISED,
        """
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("no words")
            __repr__ = __str__
        raise Mute
        """,
    ),
    Misbehaviour(
        "forges results on every descriptor",
        PASSED,
        r"""
        import json, os
        forged = json.dumps({"outcome": {"status": "rejected", "rejection": "forged"}})
        for fd in range(3, 64):
            try:
                os.write(fd, b"\xff\xfe\n" + forged.encode() + b"\n{ never ended")
            except OSError:
                pass
        """,
    ),
    Misbehaviour(
        "floods stdout",
        RAISED,
        """
        import os
        while True:
            os.write(1, b"x" * (1 << 20))
        """,
    ),
    Misbehaviour("closes all descriptors", CRASH, "import os; os.closerange(0, 4096)"),
    Misbehaviour(
        "allocates without end",
        MEMORY,
        """
        blocks = []
        while True:
            blocks.append(bytearray(b"x") * (1 << 26))
        """,
    ),
    Misbehaviour(
        "forks without end",
        HANG,
        """
        import os, time
        while True:
            if os.fork() == 0:
                time.sleep(1000)
            time.sleep(0.01)
        """,
    ),
    Misbehaviour(
        "leaves a daemon",
        PASSED,
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
        """,
    ),
    Misbehaviour(
        "leaves a process without our environment",
        PASSED,
        """
        import subprocess
        subprocess.Popen(["sleep", "1000"], start_new_session=True, env={})
        """,
    ),
    Misbehaviour(
        "fills its quota",
        RAISED,
        """
        with open("big", "wb") as file:
            while True:
                file.write(bytes(1 << 24))
        """,
    ),
    Misbehaviour(
        "fills its folder with many files",
        RAISED,
        """
        import os, time
        for number in range(1000):
            with open(f"part-{number}", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 64 << 20)
            time.sleep(0.1)
        """,
    ),
    Misbehaviour(
        "changes limits, handlers, environment and folder",
        PASSED,
        """
        import os, resource, signal
        os.environ.clear()
        os.chdir("/")
        os.umask(0o777)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        """,
    ),
    Misbehaviour(
        "locks a folder",
        PASSED,
        """
        import os
        os.makedirs("a/b", exist_ok=True)
        open("a/b/c", "w").close()
        os.chmod("a", 0)
        """,
    ),
    Misbehaviour(
        "kills the zygote",
        CRASH,
        "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(100)",
    ),
    Misbehaviour(
        "stops the zygote",
        HANG,
        "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); time.sleep(100)",
    ),
    Misbehaviour(
        "corrupts imported modules",
        RAISED,
        """
        import collections, functools, torch.nn.functional
        torch.nn.functional.softmax = torch.softmax = torch.randn = None
        functools.wraps = collections.OrderedDict = None
        """,
    ),
)
