"""Whether the sandbox survives whatever a program does to it: the table of docs/RELIABILITY.md.

    PYTHONPATH=. python benchmarks/reliability.py [--times 3] [--workers 2] [--json]

Every row of `misbehaviours.py` runs `--times` times in each of `--workers` sandboxes that work side
by side. After each run a program that behaves has to pass, no process may be left below the
sandbox's, and no file in its folder. Exit code 1 when a row does not hold.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from attnfuzz.actors.sandbox.job import Limits
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import LOCK, Scratch
from benchmarks.misbehaviours import MISBEHAVIOURS, WELL_BEHAVED, Misbehaviour, called

LIMITS = Limits(memory_mb=2048, file_mb=256, disk_mb=512)


@dataclass
class Result:
    """One row in one sandbox: what each run was called, what was left, and the longest time in
    seconds until the next program had passed."""

    name: str
    right: str
    called: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    serving_s: float = 0.0

    @property
    def holds(self) -> bool:
        return set(self.called) == {self.right} and not self.left


def what_is_left(sandbox: Sandbox, scratch: Path) -> list[str]:
    """Processes below the sandbox's zygote, and files besides the zygote's and the run's lock."""
    processes = [f"process {pid}" for pid in sandbox.processes()]
    files = (path for path in scratch.rglob("*") if path.is_file())
    ours = (scratch / LOCK, *scratch.rglob("zygote-*"))
    return processes + [str(path) for path in files if path not in ours]


def run_row(sandbox: Sandbox, scratch: Path, row: Misbehaviour, times: int) -> Result:
    """`row`, `times` times in a row."""
    result = Result(row.name, row.called)
    for _ in range(times):
        result.called.append(called(sandbox.run(row.source, row.job)))
        began = time.monotonic()
        after = called(sandbox.run(WELL_BEHAVED.source, WELL_BEHAVED.job))
        result.serving_s = max(result.serving_s, time.monotonic() - began)
        if after != WELL_BEHAVED.called:
            result.left.append(f"the next program: {after}")
        result.left += what_is_left(sandbox, scratch)
    return result


def worker(times: int) -> list[Result]:
    """Every row in a sandbox of its own."""
    with Scratch.create() as scratch, Sandbox(scratch=scratch.root, limits=LIMITS) as sandbox:
        return [run_row(sandbox, scratch.root, row, times) for row in MISBEHAVIOURS]


def table(rows: Sequence[Sequence[Result]], times: int) -> Table:
    """A line for each row, all workers together."""
    made = Table("a program that", "is", "called so", "serving after", "left behind")
    for results in rows:
        right = sum(result.called.count(result.right) for result in results)
        left = "; ".join(sorted({what for result in results for what in result.left}))
        serving = max(result.serving_s for result in results)
        made.add_row(
            results[0].name, results[0].right, f"{right} of {times * len(results)}",
            f"{serving:.1f} s", left or "nothing",
        )  # fmt: skip
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    with ThreadPoolExecutor(given.workers) as threads:
        workers = list(threads.map(worker, [given.times] * given.workers))
    rows = list(zip(*workers, strict=True))
    hold = sum(all(result.holds for result in row) for row in rows)
    if given.json:
        print(json.dumps([[asdict(result) for result in row] for row in rows], indent=1))
    else:
        console = Console(width=120)
        console.print(table(rows, given.times))
        console.print(
            f"{hold} of {len(rows)} rows hold, each {given.times} times in {given.workers} "
            f"sandboxes at once, in {time.monotonic() - began:.0f} s on {platform.platform()}"
        )
    return 0 if hold == len(rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
