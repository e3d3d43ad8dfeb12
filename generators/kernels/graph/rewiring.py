"""Steps that read or give values of other names than they did, and what a value was made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Any, NamedTuple

from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.step import Step


class Given(NamedTuple):
    """A value by its name, and which step gave it; None of an argument."""

    name: str
    by: int | None


def reading(step: Step, old: str, new: str) -> Step:
    """The step reading `new` in place of `old`."""
    return _changed(step, step.operands, old, new)


def writing(step: Step, old: str, new: str) -> Step:
    """The step giving `new` in place of `old`."""
    return _changed(step, step.targets, old, new)


def at_defaults(step: Step) -> Step:
    """The step with every field that has a default at it, but for those that name values."""
    named = {*step.operands, *step.targets}
    plain: dict[str, Any] = {
        field.name: field.default
        for field in fields(step)
        if field.name not in named and field.default is not MISSING
    }
    return replace(step, **plain)


def renamed(steps: tuple[Step, ...], old: str, new: str) -> tuple[Step, ...]:
    """The steps reading `new` in place of `old`, until one of them is given anew."""
    changed: list[Step] = []
    gone = False
    for step in steps:
        changed.append(step if gone or old not in step.reads() else reading(step, old, new))
        gone = gone or bool({old, new} & set(step.writes()))
    return tuple(changed)


def without(graph: Graph, taken: Collection[int], old: str, new: str, end: int) -> Graph:
    """Without the steps that are taken, none after `end`, and `new` read in place of `old` from
    there on."""
    kept = tuple(step for i, step in enumerate(graph.body[: end + 1]) if i not in taken)
    rest = graph.body[end + 1 :]
    rest = renamed(rest, old, new) if old != new else rest
    last = old in graph.returns and not any(old in step.writes() for step in rest)
    returns = graph.returns
    if last and new not in returns:
        returns = tuple(new if name == old else name for name in returns)
    return replace(graph.with_steps((*kept, *rest)), returns=returns)


def last_writer(steps: tuple[Step, ...], name: str, before: int) -> int | None:
    """Which step gave the value of that name that step `before` reads; None of an argument."""
    return next((i for i in reversed(range(before)) if name in steps[i].writes()), None)


def given(steps: tuple[Step, ...], name: str, at: int) -> Given:
    """The value that step `at` reads by that name."""
    return Given(name, last_writer(steps, name, at))


def history(steps: tuple[Step, ...], value: Given) -> Iterator[Given]:
    """The value, and what it was made of by first operands, the nearest first."""
    yield value
    while value.by is not None and (read := steps[value.by].reads()):
        value = given(steps, read[0], value.by)
        yield value


def _changed(step: Step, keys: Iterable[str], old: str, new: str) -> Step:
    changed: dict[str, Any] = {}
    for key in keys:
        value = getattr(step, key)
        if isinstance(value, tuple):
            changed[key] = tuple(new if name == old else name for name in value)
        elif value == old:
            changed[key] = new
    return replace(step, **changed)
