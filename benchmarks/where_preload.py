"""The preload file of `throughput.py --where`: notes where a program's CPU time goes.

It is copied into a folder. In each process of a program a timer of CPU time ticks every `TICK_S`,
and what the main thread is at is told by its stack. `cpu-<pid>.json` beside this file has the
seconds by what they went into, written every second and at the end:
{"Inductor": 1.23, "compilers started": 2.1, …}. Time of native code is that of the Python line that
called it.
"""

import json
import os
import resource
import signal
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

HERE = Path(__file__).resolve().parent
TICK_S = 0.01

FILES = (
    ("/torch/_inductor/", "Inductor"),
    ("/torch/_functorch/", "AOTAutograd"),
    ("/torch/_dynamo/", "dynamo"),
    ("/actors/oracles/", "oracles"),
    ("/actors/child/features.py", "what the compiler did"),
)
"""The innermost frame of one of these says what goes on."""

spent: dict[str, float] = defaultdict(float)
ticks = 0


def what(frame: FrameType | None) -> str:
    """What the stack is at: the search for the layer to blame, then the innermost of `FILES` or
    what the child is doing."""
    found = ""
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if path.endswith("/actors/child/execute.py") and name == "_rerun":
            return "the layer to blame"
        if not found:
            found = next((label for part, label in FILES if part in path), "")
        if not found and name == "reference" and path.endswith("program.py"):
            found = "reference"
        frame = frame.f_back
    return found or "the program itself"


def note(number: int, frame: FrameType | None) -> None:
    global ticks
    ticks += 1
    spent[what(frame)] += TICK_S
    if ticks % 100 == 0:
        write()


def write() -> None:
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent["compilers started"] = below.ru_utime + below.ru_stime
    temporary = HERE / f"cpu-{os.getpid()}.tmp"
    temporary.write_text(json.dumps(spent))
    temporary.rename(HERE / f"cpu-{os.getpid()}.json")


def write_at_exit() -> None:
    """Every process of a program ends by `os._exit`, unless it is killed."""
    leave = os._exit

    def noting(status: int) -> NoReturn:
        signal.setitimer(signal.ITIMER_PROF, 0)
        write()
        leave(status)

    os._exit = noting


write_at_exit()
signal.signal(signal.SIGPROF, note)
signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)
