"""What a program that takes all CPUs does to one beside it, with and without CPUs of their own.

    PYTHONPATH=. python benchmarks/neighbours.py [--seed 1] [--programs 8] [--spinning 8]

Two sandboxes run at once, as those of two workers do, on two CPUs. One runs programs of the profile
`inductor-sdpa` one after the other, as often as there are neighbours to compare: nobody, itself
(another sandbox with such programs) and a program of some spinning processes. Each is done with
CPUs of their own (`pin_cpus`) and without; the seconds are of the clock, and the median is that of
programs, each of which runs in every row. Where Linux groups processes by session (`autogroup`),
as on most desktops, it shares the CPUs between the two sandboxes by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from attnfuzz.actors.sandbox.cpus import here
from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.shards import stream

SPINS = """\
import os, time

for _ in range({processes} - 1):
    if os.fork() == 0:
        break
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    pass
"""
PROFILE = "inductor-sdpa"
PATIENT = Deadlines().times(10)


def timed(sandbox: Sandbox, programs: Sequence[Program]) -> list[float]:
    """Seconds that each program takes. Raises SystemExit where one does not pass, since then the
    times of the rows are not of the same work."""
    seconds = []
    for program in programs:
        began = time.monotonic()
        outcome = sandbox.run(source(program), Job.of(program, deadlines=PATIENT))
        seconds.append(time.monotonic() - began)
        if outcome.status != "passed":
            raise SystemExit(f"a program {outcome.status}: choose another --seed")
    return seconds


@contextmanager
def beside(sandbox: Sandbox, neighbour: str, programs: Sequence[Program], n: int) -> Iterator[None]:
    """The neighbour runs while the block does: "nobody", "programs" or "spinning"."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            if neighbour == "programs":
                for program in programs:
                    if not over.is_set():
                        sandbox.run(source(program), Job.of(program, deadlines=PATIENT))
            else:
                sandbox.run(SPINS.format(processes=n, seconds=2), Job(deadlines=PATIENT))

    thread = threading.Thread(target=work)
    if neighbour != "nobody":
        thread.start()
        time.sleep(2)
    try:
        yield
    finally:
        over.set()
        if neighbour != "nobody":
            thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--programs", type=int, default=8)
    options.add_argument("--spinning", type=int, default=8, help="processes of the neighbour")
    chosen = options.parse_args(arguments)
    first, *others = sorted(here())
    if not others:
        raise SystemExit("needs two CPUs")
    os.sched_setaffinity(0, (first, others[0]))
    programs = list(islice(stream(chosen.seed, profile=PROFILE), chosen.programs))
    shown = Table("neighbour", "CPUs", "a program, median", "all of them")
    for neighbour in ("nobody", "programs", "spinning"):
        for own in (False, True):
            with ExitStack() as stack:
                scratch = stack.enter_context(Scratch.create())
                mine, its = (
                    stack.enter_context(Sandbox(scratch=Path(scratch.root), cpus=cpus))
                    for cpus in (((first,), (others[0],)) if own else ((), ()))
                )
                timed(mine, programs[:1])  # what is loaded once
                with beside(its, neighbour, programs, chosen.spinning):
                    seconds = timed(mine, programs)
            row = neighbour, "its own" if own else "shared", median(seconds), sum(seconds)
            shown.add_row(row[0], row[1], f"{row[2]:.2f} s", f"{row[3]:.1f} s")
    Console(width=100).print(shown)
    with contextlib.suppress(OSError):
        grouped = Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip()
        print(f"kernel.sched_autogroup_enabled: {grouped}")
    print(
        f"{chosen.programs} programs of {PROFILE}, seed {chosen.seed}; {chosen.spinning} spinning "
        f"processes; {platform.platform()}, 2 CPUs, load {' '.join(map(str, os.getloadavg()))}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
