"""Predicted costs, and the budgets that follow from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnfuzz.actors.cost import FLOOR_S, TIMES, CostModel, budget, fitted, traits
from attnfuzz.generators.model.outcome import Cost, Outcome
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.strategies.shards import shard_programs


def test_what_is_compiled_by_inductor_is_predicted_to_cost_more() -> None:
    model = CostModel.of_table()
    eager = Program()
    compiled = replace(eager, compile=Compile())
    assert model.predict(compiled) > 2 * model.predict(eager)
    assert model.predict(replace(compiled, calls=compiled.calls)) == model.predict(compiled)


def test_a_model_learns_how_fast_its_machine_is() -> None:
    model, programs = CostModel.of_table(), shard_programs(1, 0, 30, {"mixed": 1.0})
    before = [model.predict(program) for program in programs]
    for _ in range(120):
        for program, cost in zip(programs, before, strict=True):
            model.learn(program, 3 * cost)
    after = [model.predict(program) for program in programs]
    slower = sorted(late / early for late, early in zip(after, before, strict=True))
    assert slower[0] > 2.5 and slower[-1] < 3.5
    assert CostModel.of_table().predict(programs[0]) == before[0], "the table stays as it is"


def test_a_fitted_model_predicts_what_it_was_fitted_to() -> None:
    samples = [({"": 1.0, "a": 1.0}, 1.0), ({"": 1.0}, 0.1), ({"": 1.0, "b": 2.0}, 10.0)]
    model = fitted(samples)
    for found, cpu_s in samples:
        assert model.predict_traits(found) == pytest.approx(cpu_s, rel=0.5)


def test_every_program_may_take_a_while() -> None:
    assert budget(0.1) == FLOOR_S
    assert budget(FLOOR_S) == TIMES * FLOOR_S
    assert all(size > 0 for size in traits(Program()).values())


def test_what_is_stopped_is_neither_passed_nor_failed() -> None:
    outcome = Outcome(status="stopped", rejection="it used 30 s of CPU", cost=Cost(cpu_s=30.0))
    assert outcome.failure is None
