"""A graph with plain words for the same operators means the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.spelling import PLAIN, spelled
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.types import arguments, scopes, scopes_of_calls
from attnfuzz.generators.kernels.graph.values import Scope
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import class_of, kind_of, parts
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.shards import shard_programs

DRAWN = [program for shard in range(10) for program in shard_programs(5, shard, 6, {"graph": 1})]
OTHERS = [
    (program, replace(program, kernel=spelled(program.kernel)))
    for program in DRAWN
    if isinstance(program.kernel, Graph) and spelled(program.kernel) != program.kernel
]


def test_programs_have_other_words() -> None:
    assert len(OTHERS) > 20


@pytest.mark.parametrize(("program", "plain"), OTHERS)
def test_it_is_valid_and_plainer(program: Program, plain: Program) -> None:
    assert not problems(plain)
    assert len(features(plain)) <= len(features(program))
    assert isinstance(plain.kernel, Graph) and spelled(plain.kernel) == plain.kernel
    assert next(iter(plugin_of(program).underneath(program))) == plain


@pytest.mark.parametrize(("program", "plain"), OTHERS)
def test_it_means_the_same(program: Program, plain: Program) -> None:
    assert isinstance(program.kernel, Graph) and isinstance(plain.kernel, Graph)
    _, extents = next(scopes_of_calls(program, program.kernel))
    before = scopes(program.kernel, arguments(program, program.kernel, extents))
    for step, other, scope in zip(program.kernel.body, plain.kernel.body, before, strict=False):
        if step != other:
            assert torch.equal(value_of(step, scope), value_of(other, scope))


def value_of(step: Step, scope: Scope) -> torch.Tensor:
    """What the step gives when it is run as it is written."""
    torch.manual_seed(0)
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    for name in step.reads():
        value = scope.values[name]
        drawn = torch.randn(tuple(map(int, value.shape)))
        names[name] = drawn > 0 if value.dtype == "bool" else drawn.to(getattr(torch, value.dtype))
    exec("\n".join(step.text(scope)), names)
    result = names[step.writes()[0]]
    assert isinstance(result, torch.Tensor)
    return result


def test_words_are_choices_of_the_fields_and_the_plain_ones_are_left() -> None:
    there = {
        (kind_of(class_of(step)), part.name): part.choices
        for program in DRAWN
        if isinstance(program.kernel, Graph)
        for step in program.kernel.body
        for part in parts(class_of(step))
    }
    for field, words in PLAIN.items():
        assert {*words, *words.values()} <= {*there[field]} and not words.keys() & {*words.values()}
