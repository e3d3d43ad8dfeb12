"""Minimization: from a failing program to one of which nothing can be taken away.

The search is a state machine that knows nothing of processes: `next_candidate` gives the next
program worth running, `report` takes what became of it. Whoever drives it decides how many run at
once, so the same search serves a campaign's workers, one sandbox, and tests with a predicate.

Candidates of the best program so far come in the order of `generators.shrink.candidates`; of
those that fail alike the first in that order is accepted, whichever came back first, so the result
does not depend on the number of workers. A step (what a candidate changes) that was refused before
is tried last: most refusals stay refusals, and only the final round has to try them all again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from attnfuzz.fuzz.reduce.judges import Judge
from attnfuzz.generators.model.codec import program_id, to_data
from attnfuzz.generators.model.outcome import Layer, Outcome
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates, complexity

Step = frozenset[tuple[str, str]]


def at_layer(program: Program, layer: Layer | None) -> Program | None:
    """`program` compiled no further than `layer`, or None where that changes nothing.

    A failure that shows at a lower layer than the program compiles to is minimized there: a
    candidate then costs a fraction of what it costs with Inductor.
    """
    if program.compile is None or layer is None or layer is Layer.INDUCTOR:
        return None
    lowered: Compile | None = None
    if layer is not Layer.EAGER:
        base = replace(program.compile, mode=None, options={})
        lowered = replace(base, backend="aot_eager" if layer is Layer.AOT_EAGER else "eager")
        if layer is Layer.EXPORT:
            lowered = replace(lowered, via="export")
    smaller = replace(program, compile=lowered)
    if problems(smaller) or not complexity(smaller) < complexity(program):
        return None
    return smaller


def step_between(old: Program, new: Program) -> Step:
    """What `new` changes in `old`: the changed paths and their new values. Nodes of a list are
    known by their names, not by their places, which change when one is taken away."""
    before, after = dict(_flatten(to_data(old))), dict(_flatten(to_data(new)))
    changed = {(p, text) for p, text in after.items() if before.get(p) != text}
    gone: list[str] = []
    for path in sorted(before.keys() - after.keys()):
        if not gone or not path.startswith(f"{gone[-1]}."):  # a part of a node that is gone
            gone.append(path)
    return frozenset(changed | {(path, "(default)") for path in gone})


def _flatten(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        yield path, "{}"  # a node of defaults alone is another thing than none
        for name, value in data.items():
            yield from _flatten(value, f"{path}.{name}")
    elif isinstance(data, list):
        alike = Counter[str]()
        for position, value in enumerate(data):
            name = _name(value) if isinstance(value, dict) else str(position)
            alike[name] += 1
            yield from _flatten(value, f"{path}[{name}, {alike[name]}]")
    else:
        yield path, repr(data)


def _name(node: dict[str, object]) -> str:
    """Of a step its sort and what it gives, of anything else all that it is."""
    return f"{node['kind']} to {node['to']}" if node.keys() >= {"kind", "to"} else repr(node)


@dataclass
class _Trial:
    """A candidate on its way; `outcome` is None until it is reported. The search `ends` there."""

    program: Program
    id: str
    step: Step
    ends: bool = False
    outcome: Outcome | None = None
    alike: bool = False


class Minimizer:
    """Shrinks `program`, which failed with `outcome`, as long as `judge` says that it fails alike.

    `best` and `outcome` are the simplest failing program so far and its outcome. `avoid` names
    programs that must not be stepped to (those which an already known bucket explains). Those of
    them that `ends_at` names are tried once nothing simpler is left, and end the search: they have
    nothing but what that bucket needs, and one step leads there. The search ends so, 1-minimal
    (`minimal`), or with the best so far after `max_candidates` runs or `stop()`.
    `other_failures` collects failures of another kind met on the way: findings of their own.
    """

    def __init__(
        self,
        program: Program,
        outcome: Outcome,
        judge: Judge,
        *,
        max_candidates: int = 1000,
        avoid: Callable[[Program], bool] = lambda program: False,
        ends_at: Callable[[Program], bool] = lambda program: False,
        simplify: Callable[[Program], Iterable[Program]] = candidates,
    ) -> None:
        self.best = program
        self.outcome = outcome
        self.minimal = False
        self.steps = 0
        self.evaluated = 0
        self.other_failures: list[tuple[Program, Outcome]] = []
        self.judge = judge
        self._avoid = avoid
        self._ends_at = ends_at
        self._simplify = simplify
        self._max_candidates = max_candidates
        self._refused_steps: set[Step] = set()
        self._refused_ids: set[str] = {program_id(program)}
        self._known: dict[str, Outcome] = {}
        self._out: dict[str, _Trial] = {}
        self._stopped = self._exhausted = False
        self._window: list[_Trial] = []
        self._stream: Iterator[_Trial]
        layer = outcome.failure.layer if outcome.failure else None
        self._restart(at_layer(program, layer))

    @property
    def finished(self) -> bool:
        """Whether the search has ended: stopped, out of runs, or with nothing simpler to try."""
        return not self._window and (self._stopped or self._exhausted)

    def stop(self) -> None:
        """Keep the best so far: no further candidate is given out, and what is out is ignored."""
        self._stopped = True
        self._window.clear()

    def next_candidate(self) -> Program | None:
        """The next candidate to run; None when there is none, or none before more is reported."""
        while not self._stopped and not any(trial.alike for trial in self._window):
            if self.evaluated >= self._max_candidates:
                self._stopped = True
                break
            trial = next(self._stream, None)
            if trial is None:
                self._exhausted = True
                self.minimal = not self._window
                break
            self._window.append(trial)
            if trial.id in self._known:
                self._resolve(trial, self._known[trial.id], True)
                continue
            if trial.id in self._out:  # still running since it was offered by an earlier best
                self._out[trial.id] = trial
                continue
            self.evaluated += 1
            self._out[trial.id] = trial
            return trial.program
        return None

    def report(self, program: Program, outcome: Outcome) -> bool:
        """What became of a candidate that `next_candidate` gave. True when `best` changed."""
        trial = self._out.pop(program_id(program), None)
        if trial is None:
            return False
        alike = self.judge(trial.program, outcome)
        if not alike and outcome.status == "failed":
            self.other_failures.append((trial.program, outcome))
        return self._resolve(trial, outcome, alike)

    def _resolve(self, trial: _Trial, outcome: Outcome, alike: bool) -> bool:
        trial.outcome, trial.alike = outcome, alike
        if alike:
            self._known[trial.id] = outcome
        else:
            self._refused_ids.add(trial.id)
        while self._window and self._window[0].outcome is not None:
            first = self._window.pop(0)
            if first.alike:
                self._accept(first)
                return True
            self._refused_steps.add(first.step)
        self.minimal = self._exhausted and not self._window and not self._stopped
        return False

    def _accept(self, trial: _Trial) -> None:
        assert trial.outcome is not None
        self.best, self.outcome = trial.program, trial.outcome
        self.steps += 1
        self._restart(None)
        if trial.ends:
            self._stream = iter(())
            self._exhausted = self.minimal = True

    def _restart(self, first: Program | None) -> None:
        self._window = []
        self._exhausted = False
        self._stream = self._trials(first)

    def _trials(self, first: Program | None) -> Iterator[_Trial]:
        """Candidates of `best` not yet refused, those by a step refused before at the end, and then
        those that end the search."""
        best, limit = self.best, complexity(self.best)
        deferred: list[_Trial] = []
        ending: list[Program] = []
        offered: set[str] = set()
        if first is not None:
            offered.add(program_id(first))
            yield _Trial(first, program_id(first), step_between(best, first))
        for program in self._simplify(best):
            name = program_id(program)
            if name in offered or name in self._refused_ids:
                continue
            offered.add(name)
            if not complexity(program) < limit:
                continue
            if self._avoid(program):
                ending += [program] if self._ends_at(program) else []
                continue
            trial = _Trial(program, name, step_between(best, program))
            if trial.step in self._refused_steps:
                deferred.append(trial)
            else:
                yield trial
        # A refusal may be learnt while these wait: looked at again, for 1-minimality.
        yield from (trial for trial in deferred if trial.id not in self._refused_ids)
        for program in ending:
            yield _Trial(program, program_id(program), step_between(best, program), ends=True)
