"""Runs drawn programs for `reach.py` and adds up which lines of torch they came to."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from coverage import CoverageData
from coverage.exceptions import CoverageException

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.kernels.registry import REGISTRY
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs
from attnfuzz.generators.strategies.swarm import PROFILES
from benchmarks.reach_lines import FUSION, replacements, settings

PATIENCE = 3
"""How much longer than usual a phase may take: tracing makes programs slower."""

PRELOAD = Path(__file__).with_name("reach_preload.py")
_WHERE = """
from importlib import metadata, util
print(util.find_spec("torch").submodule_search_locations[0])
print(metadata.version("torch"))
"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run: programs of each of `profiles` on each of `targets` that takes it, until there
    are `programs` or `seconds` are over (None: no limit), on the interpreter `toolchain`. With
    `failing` what did not pass counts too."""

    seed: int
    programs: int | None
    seconds: float | None
    targets: Sequence[str]
    profiles: Sequence[str]
    workers: int
    toolchain: str
    failing: bool


@dataclass
class Found:
    """Of one program or of many: lines by path, executed or traced by dynamo; in how many programs
    each registered pattern fired; how many programs of each status there were, and how many of them
    are counted in the rest."""

    executed: dict[str, set[int]] = field(default_factory=dict)
    traced: dict[str, set[int]] = field(default_factory=dict)
    fired: Counter[str] = field(default_factory=Counter)
    patterns: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    counted: int = 0


def torch_of(toolchain: str) -> tuple[Path, str]:
    """The folder of the toolchain's torch, links resolved, and its version. Raises UserError."""
    ran = subprocess.run([toolchain, "-c", _WHERE], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise UserError(f"{toolchain}: expected a Python interpreter with torch")
    folder, version = ran.stdout.split("\n")[:2]
    return Path(folder).resolve(), version


def usual_profiles(targets: Sequence[str]) -> list[str]:
    """Those whose programs need nothing but torch, and that one of the targets takes."""
    weights = {
        name: 1.0
        for name, profile in PROFILES.items()
        if name != "function"
        and not any(
            kernel in REGISTRY and REGISTRY[kernel].package for kernel, _ in profile.kernels
        )
    }
    taken = {name for target in targets for name in TARGETS[target].profiles(weights)}
    return [name for name in weights if name in taken]


def draw(plan: Plan) -> Iterator[tuple[Program, str]]:
    """The programs without end, each with its target and a swarm of its own: the profiles of the
    targets in turn, one that is named twice twice as often. They depend on the seed, the targets
    and the profiles alone."""
    wanted = dict.fromkeys(plan.profiles, 1.0)
    taken = {target: TARGETS[target].profiles(wanted) for target in plan.targets}
    pairs = [(target, name) for name in plan.profiles for target in taken if name in taken[target]]
    if not pairs:
        raise UserError(f"--profile: {', '.join(plan.targets)} take none of these")
    for index in count():
        target, profile = pairs[index % len(pairs)]
        place = TARGETS[target].place
        (program,) = shard_programs(plan.seed, index, 1, {profile: 1.0}, place=place)
        yield program, target


class Runner:
    """A sandbox for each target that tells where its programs came to; for one thread."""

    def __init__(self, plan: Plan, files: Mapping[str, Path], scratch: Path, name: str) -> None:
        """`files` are to be traced; what it writes is in the folder `name` of `scratch`."""
        self._folder = scratch / name
        self._folder.mkdir()
        self._paths = [str(path) for path in files.values()]
        self._patterns = replacements(files[FUSION].read_text())
        self._fusion = str(files[FUSION])
        (self._folder / "coverage.ini").write_text(settings(files, self._folder))
        preload = shutil.copy(PRELOAD, self._folder)
        limits = [TARGETS[target].limits for target in plan.targets]
        self._executor = Executor(
            WorkerConfig(
                scratch=str(scratch), toolchain=plan.toolchain, targets=tuple(plan.targets),
                preload=(str(preload),), deadlines=Deadlines().times(PATIENCE),
                limits=max(limits, key=lambda limit: limit.memory_mb),
            )
        )  # fmt: skip

    def run(self, program: Program, target: str, failing: bool) -> Found:
        """Runs one program; with `failing` its lines count even if it did not pass, unless it was
        killed, which leaves nothing. Raises UserError where it could not be run."""
        how = RunSettings(target=target, confirm_hang=False)
        outcome = self._executor.run_programs([program], how)[0]
        if outcome.status == "not_run":
            raise UserError(outcome.rejection or "a program could not be run")
        found = Found(statuses=Counter({outcome.status: 1}))
        counts = failing or outcome.status == "passed"
        for path in self._folder.iterdir():
            if path.name.startswith("noted-"):
                if counts:
                    self._add_notes(path, found)
                path.unlink()
            elif path.name.startswith("coverage.") and path.suffix != ".ini":
                if counts:
                    self._add_lines(path, found)
                path.unlink(missing_ok=True)
        if outcome.status == "passed" and not found.counted:
            raise RuntimeError("a program passed and left no data of coverage.py")
        fused = found.executed.get(self._fusion, set())
        found.patterns.update(name for name, lines in self._patterns.items() if lines & fused)
        return found

    def _add_notes(self, path: Path, found: Found) -> None:
        with suppress(ValueError):  # cut short by the end of a process that was killed
            noted = json.loads(path.read_text())
            for file, lines in noted["traced"].items():
                if file in self._paths:
                    found.traced.setdefault(file, set()).update(lines)
            found.fired |= Counter(noted["fired"])  # once, in however many ranks

    def _add_lines(self, path: Path, found: Found) -> None:
        data = CoverageData(str(path))
        with suppress(CoverageException):  # as above
            data.read()
            for file in data.measured_files():
                found.executed.setdefault(file, set()).update(data.lines(file) or ())
            found.counted = 1
        data.close()

    def close(self) -> None:
        """Ends the sandboxes."""
        self._executor.close()


class Measurement:
    """Runs a plan's programs with as many sandboxes as it has workers."""

    def __init__(self, plan: Plan, files: Mapping[str, Path]) -> None:
        self._plan, self._files = plan, files
        self._drawn, self._lock = draw(plan), threading.Lock()
        self._left = plan.programs
        self._end: float | None = None
        self._stopped = False
        self.found = Found()

    def run(self, progress: Callable[[], None]) -> Found:
        """All of it; `progress` is called after each program. Raises UserError, SandboxError."""
        workers = range(self._plan.workers)
        with Scratch.create() as scratch, ThreadPoolExecutor(self._plan.workers) as threads:
            root = scratch.root
            running = [threads.submit(self._work, root, f"w{i}", progress) for i in workers]
            for each in running:
                each.result()
        return self.found

    def _work(self, scratch: Path, name: str, progress: Callable[[], None]) -> None:
        runner = None
        try:
            runner = Runner(self._plan, self._files, scratch, name)
            while (job := self._next()) is not None:
                found = runner.run(*job, failing=self._plan.failing)
                with self._lock:
                    _add(self.found, found)
                progress()
        except BaseException:
            self._stopped = True  # the others need not go on
            raise
        finally:
            if runner is not None:
                runner.close()

    def _next(self) -> tuple[Program, str] | None:
        """The next program and its target; None at the end. The time runs from the first one."""
        with self._lock:
            now = time.monotonic()
            if self._end is None and self._plan.seconds is not None:
                self._end = now + self._plan.seconds
            if self._stopped or self._left == 0 or (self._end is not None and now >= self._end):
                return None
            if self._left is not None:
                self._left -= 1
            return next(self._drawn)


def _add(total: Found, one: Found) -> None:
    for mine, its in ((total.executed, one.executed), (total.traced, one.traced)):
        for file, lines in its.items():
            mine.setdefault(file, set()).update(lines)
    total.fired += one.fired
    total.patterns += one.patterns
    total.statuses += one.statuses
    total.counted += one.counted
