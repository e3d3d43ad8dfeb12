"""A campaign whose driver is killed again and again: is anything lost, doubled or left behind?

    PYTHONPATH=. python benchmarks/kill_resume.py [--kills 50] [--seed 1] [--dir DIR] [--json]

Each round starts `attnfuzz launch` (with `--resume` from the second on), kills the driver with
SIGKILL at a random moment, waits for the reaper, and looks at what is there: processes, temporary
files, the database, the cases on disk. After the last kill the campaign is left to finish. Every
violation is printed; exit code 1 when there is one.

Nothing is taken from the environment on trust: this process is a subreaper, so that whatever the
driver leaves behind becomes its child, and the driver has temporary and cache folders of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import yaml

from attnfuzz.actors.sandbox import confine, procs, reaper, scratch
from benchmarks.campaign_state import State, damage, grown, inspect, once

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ("sdpa_masked_batch_segfault", "graph_break_gqa", "block_mask_nearly_full")
PLANTED = [ROOT / "benchmarks" / "planted" / f"{name}.py" for name in FAULTS]

SHARD_SIZE = 3
EARLY = 0.4  # share of the kills that come while the campaign is still starting
EARLY_S = (0.05, 10.0)
RUNNING_S = (0.2, 15.0)  # after the first output; the mean would be MEAN_S without the limit
MEAN_S = 4.0

FIRST_OUTPUT_S = 600.0  # the first start in a fresh cache folder builds a header
CLEAN_S = 30.0
EXIT_STOPPED = 128 + signal.SIGTERM
LAST_MINUTES = 0.6
TEMPORARY = ("attnfuzz-" + "[0-9a-f]" * 8, "ray")  # whatever asks for TMPDIR goes elsewhere

CONFIG = {
    "minutes": 60,
    "workers": 2,
    "shard_size": SHARD_SIZE,
    "profiles": {"eager": 1},
    "shipped": False,
    "preload": [str(path) for path in PLANTED],
    "confirm_runs": 2,
    "repro_runs": 1,
    "minimize": {"max_candidates": 40, "seconds": 15},
}


@dataclass(frozen=True)
class Moment:
    """When the driver is killed: `delay` seconds after its start, or after its first output."""

    early: bool
    delay: float

    @classmethod
    def draw(cls, random: Random) -> Moment:
        if random.random() < EARLY:
            return cls(True, random.uniform(*EARLY_S))
        shortest, longest = RUNNING_S
        return cls(False, min(longest, shortest + random.expovariate(1 / MEAN_S)))

    def __str__(self) -> str:
        return f"{self.delay:.2f} s after {'its start' if self.early else 'its first output'}"


@dataclass
class Round:
    """One start of the campaign: how it ended, what was there afterwards, and what was wrong."""

    number: int
    moment: str
    ended: str
    shards: int
    failures: int
    buckets: int
    cases: int
    cleaned_s: float
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = "ok" if not self.violations else f"{len(self.violations)} VIOLATIONS"
        return (
            f"{self.number:4}  {self.moment:32} {self.ended:12} {self.shards:5} shards "
            f"{self.failures:4} failures {self.buckets:3} buckets {self.cases:3} cases, "
            f"clean after {self.cleaned_s:4.1f} s  {verdict}"
        )


class Witness:
    """Sees whatever a killed driver leaves behind: processes (as the subreaper of this process's
    descendants), and temporary files that were not there before, that no process still uses and
    that do not say they are another's, whose tests may be killing workers at the same time."""

    def __init__(self, temporary: Path, drivers: Set[int]) -> None:
        self._temporary = temporary
        self._drivers = drivers
        self._mine = set(procs.descendants(os.getpid()))
        self._before = _temporary_files()

    def wait(self, within: float = CLEAN_S) -> tuple[list[str], float]:
        """What is still there after `within` seconds, and how long it took to vanish."""
        began = time.monotonic()
        while left := self._left():
            if time.monotonic() - began > within:
                break
            time.sleep(0.05)
        return left, time.monotonic() - began

    def _left(self) -> list[str]:
        self._collect()
        processes = [
            f"process {pid} is left: {_command(pid)}"
            for pid in procs.descendants(os.getpid())
            if pid not in self._mine
        ]
        mine = [f"file is left: {path}" for path in sorted(self._temporary.iterdir())]
        new = sorted(_temporary_files() - self._before)
        used = _commands() if new else ""
        unused = [path for path in new if path not in used and self._may_be_ours(Path(path))]
        return processes + mine + [f"file is left: {path}" for path in unused]

    def _may_be_ours(self, folder: Path) -> bool:
        try:
            return int((folder / scratch.LOCK).read_text()) in self._drivers
        except (OSError, ValueError):  # it does not say whose it is
            return True

    def _collect(self) -> None:
        """Waits for the dead that were adopted, and for nobody else's."""
        for process in procs.table().values():
            dead = process.ppid == os.getpid() and process.state == "Z"
            if dead and process.pid not in self._mine:
                os.waitpid(process.pid, os.WNOHANG)


@contextmanager
def witness(temporary: Path, drivers: Set[int]) -> Iterator[Witness]:
    """A `Witness` while the block runs."""
    confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield Witness(temporary, drivers)
    finally:
        procs.kill_all(lambda: [p for p in procs.descendants(os.getpid()) if _is_driver(p)])
        confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 0)


def _is_driver(pid: int) -> bool:
    return "-m attnfuzz launch" in _command(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _commands() -> str:
    """Command lines and markers of everything that runs: a scratch folder's reaper names it."""
    return "\n".join(_command(pid) for pid in procs.running())


def _temporary_files() -> set[str]:
    return {str(path) for pattern in TEMPORARY for path in Path("/tmp").glob(pattern)}


class Campaign:
    """The campaign under test, everything of which is below `folder`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.directory = folder / "campaign"
        self.temporary = folder / "tmp"
        self.drivers: set[int] = set()  # their process ids
        self._log = folder / "driver.log"
        self._config = folder / "config.yaml"
        self._cache = folder / "cache"
        for path in (self.temporary, self._cache):
            path.mkdir(parents=True)
        self._config.write_text(yaml.safe_dump(CONFIG | {"seed": seed}, sort_keys=False))

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Starts the driver, which goes on where there is something to go on with."""
        command = [sys.executable, "-m", "attnfuzz", "launch", str(self._config), "--json"]
        command += ["--dir", str(self.directory), "--resume", *options]
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(self._cache),
        }
        environment.pop(reaper.MARKER, None)
        with self._log.open("wb") as log:
            driver = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.drivers.add(driver.pid)
        return driver

    def said(self) -> str:
        """What the driver has printed since it was started."""
        return self._log.read_text(errors="replace")

    def kill(self, moment: Moment) -> str:
        """Starts the driver and kills it at that moment; says how it ended."""
        driver = self.start()
        began = time.monotonic()
        while not moment.early and not self._log.stat().st_size and driver.poll() is None:
            if time.monotonic() - began > FIRST_OUTPUT_S:
                break
            time.sleep(0.02)
        at = (began if moment.early else time.monotonic()) + moment.delay
        while time.monotonic() < at and driver.poll() is None:
            time.sleep(min(0.02, max(0.0, at - time.monotonic())))
        driver.kill()
        return _ending(driver.wait())

    def finish(self) -> str:
        """Runs the campaign to its end; says how it ended."""
        driver = self.start("--minutes", str(LAST_MINUTES))
        try:
            return _ending(driver.wait(FIRST_OUTPUT_S + 60 * LAST_MINUTES + 60))
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
            return "no end"


def _ending(code: int) -> str:
    return "killed" if code == -signal.SIGKILL else f"exit {code}"


def play(folder: Path, kills: int, seed: int) -> Iterator[Round]:
    """The rounds, `kills` of them with a kill and the last one without, as they end."""
    campaign, random = Campaign(folder, seed), Random(seed)
    before = State()
    with witness(campaign.temporary, campaign.drivers) as watching:
        for number in range(1, kills + 2):
            moment = Moment.draw(random) if number <= kills else None
            ended = campaign.kill(moment) if moment else campaign.finish()
            left, cleaned_s = watching.wait()
            state = inspect(campaign.directory)
            violations = left + damage(state, SHARD_SIZE) + grown(before, state)
            if ended != ("killed" if moment else "exit 0"):
                said = campaign.said()[-2000:]
                violations.append(f"the driver ended by itself ({ended}): {said}")
            if moment is None:
                violations += once(campaign.directory, state)
            yield Round(
                number,
                str(moment or "left to finish"),
                ended,
                len(state.shards),
                len(state.failures),
                len(state.buckets),
                len(state.cases),
                round(cleaned_s, 2),
                violations,
            )
            before = state


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=1, help="of the campaign and of the moments")
    options.add_argument("--dir", type=Path, help="a new folder to keep everything in")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_STOPPED))  # leaves nothing behind
    began, rounds = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="kill-resume-") as made:
        for one in play(chosen.dir or Path(made), chosen.kills, chosen.seed):
            rounds.append(one)
            if not chosen.json:
                print(one, *one.violations, sep="\n        ", flush=True)
    violations = [violation for one in rounds for violation in one.violations]
    if chosen.json:
        print(json.dumps({"violations": violations, "rounds": [asdict(one) for one in rounds]}))
    else:
        last, minutes = rounds[-1], (time.monotonic() - began) / 60
        print(
            f"{chosen.kills} kills in {minutes:.1f} min: {last.shards} shards, {last.failures} "
            f"failures, {last.buckets} buckets; {len(violations) or 'no'} violations"
        )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
