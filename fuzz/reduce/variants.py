"""Variants: the minimized program at every layer, with every kernel that can say the same, and with
other toolchains.

The matrix (fails, passes, rejects, flaky) is what a maintainer needs first: it shows whether a
fault is in a kernel, in what wraps it, or in what compiles it, and which releases have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.verdict import is_defect
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.fuzz.pool.stage import outcomes_of
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, Task, TaskFailed, WorkerDied
from attnfuzz.fuzz.reduce.judges import Judge
from attnfuzz.generators.kernels.registry import REGISTRY, plugin_of
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.validity import problems


def variants(program: Program) -> dict[str, Program]:
    """The program's variants by name ("layer=eager", "kernel=flex", "dynamic=True" …), itself and
    those that are no programs left out."""
    found: dict[str, Program] = {}
    seen = {program_id(program)}
    for name, variant in [*_layers(program), *_kernels(program), *_compiles(program)]:
        if program_id(variant) not in seen and not problems(variant):
            seen.add(program_id(variant))
            found[name] = variant
    return found


def _layers(program: Program) -> Iterator[tuple[str, Program]]:
    yield "layer=eager", replace(program, compile=None)
    base = program.compile or Compile()
    plain = replace(base, mode=None, options={})
    yield "layer=dynamo", replace(program, compile=replace(plain, backend="eager"))
    yield "layer=aot_eager", replace(program, compile=replace(plain, backend="aot_eager"))
    yield "layer=inductor", replace(program, compile=replace(base, backend="inductor"))


def _kernels(program: Program) -> Iterator[tuple[str, Program]]:
    if plugin_of(program).interchangeable:
        for plugin in REGISTRY.values():
            for name, kernel in plugin.variants(program):
                yield f"kernel={name}", replace(program, kernel=kernel)


def _compiles(program: Program) -> Iterator[tuple[str, Program]]:
    if program.compile is None:
        return
    for dynamic in (True, False):
        yield (
            f"dynamic={dynamic}",
            replace(program, compile=replace(program.compile, dynamic=dynamic)),
        )
    whole = not program.compile.fullgraph
    yield f"fullgraph={whole}", replace(program, compile=replace(program.compile, fullgraph=whole))


BASELINE = "baseline="
"""Begins the name of the variant that runs with a campaign's baseline."""


PASSES = "passes"
"""The result of a variant that passes; with the baseline it shows a regression."""


@dataclass(frozen=True)
class Releases:
    """`program` with other `toolchains`: interpreters, by the names of the variants. It runs up to
    `runs` times with each, until it fails; `judge` says whether it fails alike, in whatever words
    that release has."""

    program: Program
    toolchains: Mapping[str, str]
    runs: int
    judge: Judge


class Variants:
    """Runs the variants `programs`, by name, on the target `here`, `elsewhere`'s programs on
    the targets that are their names ("target=…"), and the program of `releases` with its
    toolchains; `matrix` gives what each did: fails, fails otherwise, passes, rejects, flaky, or not
    judged where our reference cannot say it.

    A variant that fails runs once more, to distinguish flaky from failing. What it fails with
    is not a finding of its own: the same fault looks different at another layer.
    """

    def __init__(
        self,
        programs: Mapping[str, Program],
        judge: Judge,
        here: str = DEFAULT,
        elsewhere: Mapping[str, Program] = MappingProxyType({}),
        releases: Releases | None = None,
    ) -> None:
        self.other_failures: list[tuple[Program, Outcome]] = []
        self.matrix: dict[str, str] = {}
        self._judge = judge
        self._here = here
        self._releases = releases
        self._toolchains = list(releases.toolchains.items()) if releases else []
        places = {f"target={target}": (one, target) for target, one in elsewhere.items()}
        every = {name: (program, here) for name, program in programs.items()} | places
        self._names = {(program_id(p), target): name for name, (p, target) in every.items()}
        self._waiting = list(every.values())
        self._running = 0

    @property
    def finished(self) -> bool:
        return not self._waiting and not self._toolchains and not self._running

    def next_task(self) -> Task | None:
        if self._toolchains and self._releases is not None:
            self._running += 1
            _, python = self._toolchains.pop(0)
            settings = RunSettings(target=self._here, toolchain=python, until="failed")
            return RunTask((self._releases.program,) * self._releases.runs, settings)
        if not self._waiting:
            return None
        self._running += 1
        program, target = self._waiting.pop(0)
        return RunTask((program,), RunSettings(target=target))

    def report(self, task: Task, answer: Answer) -> None:
        self._running -= 1
        assert isinstance(task, RunTask) and task.settings.target is not None
        program = task.programs[0]
        if task.settings.toolchain is not None:
            self._report_release(task.settings.toolchain, task, answer)
            return
        name = self._names[program_id(program), task.settings.target]
        if isinstance(answer, WorkerDied | TaskFailed):
            self.matrix.setdefault(name, "not judged")
            return
        for outcome in outcomes_of(task, answer):
            now, before = self._result(program, outcome), self.matrix.get(name)
            self.matrix[name] = now if before in (None, now) else "flaky"
            if before is None and outcome.status == "failed":
                self._waiting.append((program, task.settings.target))

    def _report_release(self, python: str, task: Task, answer: Answer) -> None:
        """The last run says it: it is the only one that may have failed."""
        releases = self._releases
        assert releases is not None
        outcomes = outcomes_of(task, answer)
        result = "not judged"
        if outcomes:
            result = self._result(releases.program, outcomes[-1], releases.judge)
        self.matrix |= {name: result for name, one in releases.toolchains.items() if one == python}

    def _result(self, program: Program, outcome: Outcome, judge: Judge | None = None) -> str:
        if is_defect(outcome):
            return "not judged"
        if outcome.status == "failed":
            return "fails" if (judge or self._judge)(program, outcome) else "fails otherwise"
        return {"passed": PASSES, "rejected": "rejects"}.get(outcome.status, "not judged")
