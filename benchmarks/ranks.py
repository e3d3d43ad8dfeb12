"""What programs of several ranks cost beside the program itself, and what they leave behind.

    PYTHONPATH=. python benchmarks/ranks.py cost [--ranks 8] [--runs 5]
    PYTHONPATH=. python benchmarks/ranks.py leaks [--programs 500] [--ranks 8]

`cost` runs a program of that many ranks in a warm zygote, all of whose ranks meet a few times and
compute next to nothing, and the same with one rank, and prints the time of each by the clock and
of the CPUs. The difference is what ranks cost beyond what a program needs.

`leaks` runs programs one after the other in one sandbox: most pass, some have a rank that dies,
raises or leaves early, or that waits for ever, which the watchdog has to end. Afterwards it counts
the processes, ports, files of stores, named shared memory and folders that are still there.
"""

from __future__ import annotations

import os
import platform
import socket
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.procs import running
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.generators.model.outcome import Outcome
from benchmarks.misbehaviours import program

MEET = """
import os
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "0"))
if "WORLD_SIZE" in os.environ:
    dist.init_process_group("gloo")
    with open({notes!r}, "a") as notes:
        notes.write(f"{{os.getpid()}} {{os.environ['MASTER_PORT']}}\\n")
"""

BODIES = {
    "passes": "if dist.is_initialized(): dist.all_reduce(q.clone())",
    "dies": "if RANK == 1: os.abort()\ndist.barrier()",
    "raises": "if RANK == 1: raise LookupError('lost')\ndist.barrier()",
    "leaves": "if RANK == 1: os._exit(0)\ndist.barrier()",
    "hangs": "import threading\nif RANK == 1: threading.Event().wait()\ndist.barrier()",
}
"""What a rank does inside the attention function, by name."""

console = Console(highlight=False, width=110)
app = typer.Typer(add_completion=False, help=__doc__)


def kind_of(number: int) -> str:
    """Which of `BODIES` the program of that number is: in a hundred 92 that pass, and two each of
    the others."""
    return dict(zip((7, 19, 31, 43), ("dies", "raises", "leaves", "hangs"), strict=True)).get(
        number % 50, "passes"
    )


@dataclass
class Programs:
    """Runs programs of `ranks` ranks in `sandbox`; each rank notes its pid and port in `notes`."""

    sandbox: Sandbox
    notes: Path
    ranks: int
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, kind: str, ranks: int | None = None) -> Outcome:
        """What becomes of one; a hang is told soon, and is not tried again."""
        text = MEET.format(notes=str(self.notes)) + program(BODIES[kind])
        job = Job(ranks=ranks or self.ranks, deadlines=Deadlines(idle=2.0))
        outcome = self.sandbox.run(text, job, confirm_hang=False)
        failure = outcome.failure
        self.counts[f"{kind}: {failure.kind.value if failure else outcome.status}"] += 1
        return outcome


def left(programs: Programs, folder: Path, before: set[str]) -> dict[str, int]:
    """How much programs have left; `folder` is the sandbox's, `before` what it held at first."""
    text = programs.notes.read_text() if programs.notes.exists() else ""
    noted = [line.split() for line in text.splitlines()]
    pids, ports = {pid for pid, _ in noted}, {int(port) for _, port in noted}
    there = {str(pid) for pid in running()}
    shared = os.listdir("/dev/shm") if Path("/dev/shm").is_dir() else []
    return {
        "processes": len(programs.sandbox.processes()) + len(pids & there),
        "ports that somebody listens at": len(ports & _listening()),
        "ports that nobody could listen at": sum(not _usable(p) for p in ports - _listening()),
        "shared memory": sum(bool(set(name.split("_")) & pids) for name in shared),
        "files": len({str(path) for path in folder.rglob("*")} - before),
    }


def _listening() -> set[int]:
    """Ports at which somebody of this machine listens."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if Path(table).exists():
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state = line.split()[:4]
                if state == "0A":
                    found.add(int(local.rpartition(":")[2], 16))
    return found


def _usable(port: int) -> bool:
    """Whether a server could listen there, as those of torch do."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


def measure_leaks(folder: Path, count: int, ranks: int) -> tuple[dict[str, int], Counter[str]]:
    """Runs `count` programs in a sandbox in `folder`, and counts what is left of them."""
    sandboxes, notes = folder / "sandboxes", folder / "notes.txt"
    sandboxes.mkdir()
    with Sandbox(scratch=sandboxes, headers=folder) as sandbox:
        programs = Programs(sandbox, notes, ranks)
        programs.run("passes")
        before = {str(path) for path in sandboxes.rglob("*")}
        for number in range(count):
            programs.run(kind_of(number))
        return left(programs, sandboxes, before), programs.counts


def machine() -> str:
    """What this runs on."""
    cpus = len(os.sched_getaffinity(0))
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    load = os.getloadavg()[0]
    return f"{cpus} CPUs ({model[0] if model else platform.machine()}), load {load:.1f} at the end"


def cost(
    ranks: Annotated[int, typer.Option(min=2, max=64)] = 8,
    runs: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Print what ranks cost beyond what the program needs."""
    with Scratch.create() as scratch, Sandbox(scratch=scratch.root) as sandbox:
        programs = Programs(sandbox, scratch.root / "notes.txt", ranks)
        medians = {}
        for number in (1, ranks):
            programs.run("passes", number)
            wall, cpu = [], []
            for _ in range(runs):
                began = time.monotonic()
                outcome = programs.run("passes", number)
                wall.append(time.monotonic() - began)
                cpu.append(outcome.cost.cpu_s)
            medians[number] = statistics.median(wall)
            console.print(
                f"{number} rank(s): {medians[number]:.2f} s by the clock (of {runs}: "
                f"{min(wall):.2f} to {max(wall):.2f}), {statistics.median(cpu):.2f} CPU s"
            )
        environment = sandbox.environment
    console.print(f"{ranks} ranks cost {medians[ranks] - medians[1]:.2f} s more than one")
    console.print(f"torch {environment['torch']}, {machine()}")


def leaks(
    programs: Annotated[int, typer.Option(min=1)] = 500,
    ranks: Annotated[int, typer.Option(min=2, max=64)] = 8,
) -> None:
    """Print what programs of several ranks leave behind. Exit with 1 if anything is left."""
    began = time.monotonic()
    with Scratch.create() as scratch, tempfile.TemporaryDirectory(dir=scratch.root) as folder:
        found, counts = measure_leaks(Path(folder), programs, ranks)
    for name, count in sorted(counts.items()):
        console.print(f"{count:5} that {name.replace(': ', ', called ')}")
    console.print(f"left by {programs} programs of {ranks} ranks: {found}")
    console.print(f"{time.monotonic() - began:.0f} s by the clock; {machine()}")
    raise typer.Exit(1 if any(found.values()) else 0)


app.command()(cost)
app.command()(leaks)

if __name__ == "__main__":
    app()
