"""The worker: draws the programs of a shard, has its sandbox run them, and reports.

`actors.remote.Worker` is an `Executor` as a Ray actor. Neither imports torch.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from attnfuzz.actors.cost import CostModel, budget
from attnfuzz.actors.oracles import compile_time as growth
from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox import verdict
from attnfuzz.actors.sandbox.job import Deadlines, Job, Limits
from attnfuzz.actors.sandbox.parts import HostLost, Link, PartEnd, Spread
from attnfuzz.actors.sandbox.sandbox import Sandbox, SandboxError
from attnfuzz.actors.shard import Shard, ShardReport, Tally
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.counterfactual import counterfactuals, steered
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.kernels import refusals
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.mutants import mutants
from attnfuzz.generators.strategies.seeds import derive
from attnfuzz.generators.strategies.shards import shard_programs

__all__ = ["Executor", "Shard", "ShardReport", "WorkerConfig"]


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """What a worker is. `toolchain` is a Python interpreter with torch, `scratch` the root of a
    `Scratch`, `preload` paths of files that the sandbox executes before each program. What is not
    to run elsewhere runs on the first of `targets`. `per_device` is how many workers share an
    accelerator. `own_cpus` is how many CPUs it is to have to itself, `cpus` are those that it has,
    which programs of no more processes run on only. All paths are those of the machine on which the
    worker runs, see `actors.node`."""

    scratch: str
    toolchain: str = sys.executable
    targets: tuple[str, ...] = ("cpu",)
    preload: tuple[str, ...] = ()
    per_device: int = 1
    own_cpus: int = 0
    cpus: tuple[int, ...] = ()
    limits: Limits = field(default_factory=Limits)
    deadlines: Deadlines = field(default_factory=Deadlines)


class Executor:
    """Runs programs and shards, one at a time, in a sandbox for each target that is needed.
    `environment` says on what the first target's run."""

    def __init__(
        self,
        config: WorkerConfig,
        at: Callable[[str], None] = lambda program: None,
        spread: Spread | None = None,
    ) -> None:
        """Starts the first target's sandbox; `at` is told the id of each program before it runs.
        With `spread` the ranks of programs are on several nodes, and methods raise HostLost. Raises
        SandboxError when programs cannot run here."""
        for name in config.targets:
            if name not in TARGETS:
                raise SandboxError(f"target {name}: programs run on {', '.join(TARGETS)} only")
        self._config = config
        self._at = at
        self._spread = spread
        self._sandboxes: dict[str, Sandbox] = {}
        self._others: dict[tuple[str, str], Sandbox] = {}
        self._costs = CostModel.of_table()
        self._shown: set[str] = set()
        self._sandbox(self._first)

    @property
    def _first(self) -> str:
        return self._config.targets[0]

    @property
    def environment(self) -> dict[str, str]:
        """What the first target's programs run on, by name; starts its sandbox if none runs.
        Raises SandboxError when programs cannot run here."""
        return TARGETS[self._first].environment(self._sandbox(self._first).environment)

    def _sandbox(self, target: str) -> Sandbox:
        """The sandbox of `target`, started when it is first needed. Raises SandboxError."""
        if target not in self._sandboxes:
            self._sandboxes[target] = self._made(self._config.toolchain, target)
        return self._sandboxes[target]

    def run_shard(self, shard: Shard) -> ShardReport:
        """Draws the programs of `shard`, runs each, and reports what is new."""
        began, harness = time.monotonic(), self.harness_cpu_s()
        self._sandbox(shard.target)  # what it takes to start is no program's cost
        tally, aside = Tally(shard), dict(shard.set_aside)
        # A missed deadline is not run again here, and shows more when it is: one program would hold
        # up all others for minutes.
        settings = RunSettings(target=shard.target, confirm_hang=False)
        for each in drawn(shard):
            program, met = steered(each, shard.clear_of)
            tally.steer(met)
            if (machines := aside.get(program_id(program))) is not None:
                tally.set_aside(program, machines)
                continue
            outcome = self._run_new(program, shard, settings, tally, began)
            for behind in _behind(program, outcome, shard.known):
                tally.go_behind()
                self._run_new(behind, shard, settings, tally, began)
        return tally.report(time.monotonic() - began, self.harness_cpu_s() - harness)

    def _run_new(
        self, program: Program, shard: Shard, settings: RunSettings, tally: Tally, began: float
    ) -> Outcome:
        """What becomes of a program of a shard, which is counted, and learned from."""
        known = TARGETS[shard.target].costs_known
        predicted_s = self._costs.predict(program) if known else 0.0
        if known and shard.budgets:
            settings = replace(settings, budget_s=budget(predicted_s))
        tally.begin(time.monotonic() - began, predicted_s)
        outcome = self._run(program, settings, native=False)
        tally.add(program, outcome)
        if known and outcome.cost.cpu_s > 0:
            self._costs.learn(program, outcome.cost.cpu_s)
        shows = set(outcome.features) - self._shown
        if shard.feedback and shows and outcome.status == "passed":
            self._shown |= shows
            tally.keep(program, shows)
        return outcome

    def check_setup(self, target: str, function: str | None) -> list[Outcome]:
        """One outcome: that what comes before programs of `target` goes well (preload files are
        executed, `function`, a "module:name", is imported), or "not_run" and why it does not."""
        allowed = TARGETS[target].deadlines(self._config.deadlines)
        job = Job(target=target, function=function, only_setup=True, deadlines=allowed)
        return [self._sandbox(target).run("", job)]

    def run_programs(
        self, programs: Sequence[Program], settings: RunSettings | None = None
    ) -> list[Outcome]:
        """An outcome for each program, in order; fewer where `settings.until` ended it."""
        settings = settings or RunSettings()
        outcomes: list[Outcome] = []
        for program in programs:
            outcome = self._run(program, settings)
            outcomes.append(outcome)
            if settings.until == ("failed" if outcome.status == "failed" else "not failed"):
                break
        return outcomes

    def _run(self, program: Program, settings: RunSettings, *, native: bool = True) -> Outcome:
        """What becomes of the program. What of ours raises is a defect, and is reported as one,
        unless nothing could run any more."""

        def run(one: Program) -> Outcome:
            return self._run_one(one, settings, native)

        try:
            outcome = run(program)
            if not growth.may_grow(program, outcome):
                return outcome
            if settings.budget_s is not None:
                return growth.postponed(outcome)
            return growth.judged(program, outcome, run)
        except (SandboxError, OSError, HostLost):
            raise
        except Exception:
            return verdict.of_unrendered(traceback.format_exc())

    def _run_one(self, program: Program, settings: RunSettings, native: bool) -> Outcome:
        target = settings.target or self._first
        deadlines = settings.deadlines or self._config.deadlines
        where = TARGETS[target]
        unfit = where.unfit(program, bool(self._config.preload))
        if unfit is not None:
            return Outcome(status="rejected", rejection=f"not for {target}: {unfit}")
        self._at(program_id(program))
        job = where.job(program, refusals.for_program(program), deadlines)
        text, patient = where.source(program), settings.confirm_hang
        if settings.toolchain is None:
            sandbox = self._sandbox(target)
            job = replace(job, budget_s=settings.budget_s)
            return sandbox.run(text, job, confirm_hang=patient, native=native)
        try:
            other = self._other(settings.toolchain, target)
            return other.run(text, job, confirm_hang=patient, native=native)
        except SandboxError as error:  # it says nothing of the worker's own toolchain
            return Outcome(status="not_run", rejection=str(error))

    def run_part(self, source: str, job: Job, toolchain: str | None, link: Link) -> PartEnd:
        """Runs the job's part of a program as the leader at the other end of `link` orders, with
        the own toolchain if none is named. Raises SandboxError."""
        if toolchain is None:
            return self._sandbox(job.target).run_part(source, job, link)
        return self._other(toolchain, job.target).run_part(source, job, link)

    def _other(self, toolchain: str, target: str) -> Sandbox:
        """A sandbox of another toolchain. Only the last one is kept: each takes the memory of an
        imported torch. Raises SandboxError."""
        if (toolchain, target) not in self._others:
            self._close_others()
            self._others[toolchain, target] = self._made(toolchain, target)
        return self._others[toolchain, target]

    def _made(self, toolchain: str, target: str) -> Sandbox:
        config = self._config
        return Sandbox(
            toolchain,
            config.limits,
            config.scratch,
            config.preload,
            target=target,
            cpus=config.cpus,
            spread=self._spread,
        )

    def _close_others(self) -> None:
        while self._others:
            self._others.popitem()[1].close()

    def harness_cpu_s(self) -> float:
        """CPU seconds that this process and its fork servers have used."""
        open_ones = (*self._sandboxes.values(), *self._others.values())
        return time.process_time() + sum(sandbox.harness_cpu_s() for sandbox in open_ones)

    def close(self) -> None:
        """Ends the sandboxes and everything in them."""
        self._close_others()
        for sandbox in self._sandboxes.values():
            sandbox.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def drawn(shard: Shard) -> list[Program]:
    """The programs of a shard, before they are steered."""
    fresh = shard_programs(
        shard.campaign_seed,
        shard.index,
        shard.size,
        dict(shard.profiles),
        shard.functions,
        TARGETS[shard.target].place,
    )
    if not shard.parents:
        return fresh
    return mutants(derive(shard.campaign_seed, "mutants", shard.index), shard.parents, fresh)


def _behind(program: Program, outcome: Outcome, known: Sequence[Bucket]) -> list[Program]:
    """Where a program stopped at a failure that is known by its stack, the same program without
    what that needs: nothing that comes after it was tried. At most one."""
    if outcome.failure is None:
        return []
    found = signature(outcome.failure, program)
    same = (one for one in known if one.strong == found.strong and not found.needs_trigger)
    return next((lacking for one in same if (lacking := counterfactuals(one, program, 1))), [])
