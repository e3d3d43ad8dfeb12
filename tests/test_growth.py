"""The growth oracle: what is called out of proportion, and the program's smaller likes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from attnfuzz.actors.oracles.compile_time import judged, may_grow
from attnfuzz.actors.worker import Executor
from attnfuzz.corpus.signature import signature
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.growth import most_steps, with_steps
from attnfuzz.generators.model.outcome import Cost, FailureKind, Layer, Outcome
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.scores import Alibi, FloatBinary, Repeated, Score
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.repro import repro


def flex(times: int, backend: Any = "inductor") -> Program:
    return Program(
        kernel=Flex(),
        score_mod=Alibi(inner=Repeated(step="swish", times=times, inner=Score())),
        compile=Compile(backend=backend),
    )


def passed(seconds: float) -> Outcome:
    return Outcome(status="passed", cost=Cost(cpu_s=seconds))


def taking(law: Callable[[int], float]) -> Callable[[Program], Outcome]:
    """Runs that take `law(steps)` seconds to compile with Inductor, and one with less."""

    def run(program: Program) -> Outcome:
        assert program.compile is not None
        inductor = program.compile.backend == "inductor"
        return passed(law(most_steps(program.score_mod)) if inductor else 1.0)

    return run


def judge(law: Callable[[int], float], times: int = 12) -> Outcome:
    run = taking(law)
    return judged(flex(times), run(flex(times)), run)


def test_what_doubles_with_every_step_fails() -> None:
    outcome = judge(lambda n: 3 + 0.004 * 2**n)
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.layer) == (
        FailureKind.COMPILE_TIME, Layer.INDUCTOR,
    )  # fmt: skip
    assert outcome.failure.diffs[0].actual == "4.0, 7.1, 19.4 s for 8, 10, 12 steps"
    assert outcome.cost.cpu_s == pytest.approx(4.0 + 7.1 + 2 * 19.4, abs=0.1)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("times", [8, 12, 32])
def test_polynomials_pass(degree: int, times: int) -> None:
    assert judge(lambda n: float(n**degree), times).status == "passed"


def test_what_differs_from_run_to_run_passes() -> None:
    assert judge(lambda n: {8: 15.0, 10: 14.0, 12: 17.0}[n]).status == "passed"


def test_a_first_run_that_was_dear_by_itself_passes() -> None:
    run = taking(lambda n: 3 + 0.5 * n)
    assert judged(flex(12), passed(40.0), run).status == "passed"


def test_no_growth_before_is_no_growth_to_compare_with() -> None:
    assert judge(lambda n: {8: 7.9, 10: 7.8, 12: 14.0}[n]).status == "passed"


def test_what_missed_a_deadline_has_the_cost_of_two_runs() -> None:
    slow = replace(passed(240), skipped={"deadline": "missed once"})
    assert not may_grow(flex(12), slow)
    costs = {8: 110.0, 10: 115.0, 12: 240.0}

    def run(program: Program) -> Outcome:
        cost = costs[most_steps(program.score_mod)]
        return slow if cost == 240 else passed(cost)

    assert judged(flex(12), passed(240), run).status == "passed"


def test_a_layer_that_takes_the_time_without_inductor_is_to_blame() -> None:
    outcome = judged(flex(12), passed(16.0), lambda p: passed(2.0 ** (most_steps(p.score_mod) - 8)))
    assert outcome.failure is not None and outcome.failure.layer is Layer.AOT_EAGER


def test_only_what_took_long_and_repeats_much_is_run_again() -> None:
    assert may_grow(flex(12), passed(20))
    assert not may_grow(flex(12), passed(5))
    assert not may_grow(flex(7), passed(20))
    assert not may_grow(replace(flex(12), compile=None), passed(20))
    assert not may_grow(Program(compile=Compile()), passed(20))
    assert not may_grow(flex(12), Outcome(status="rejected", rejection="by design"))


def test_every_largest_repetition_is_a_step_smaller() -> None:
    both = FloatBinary(
        op="+",
        left=Repeated(times=8, inner=Repeated(times=8, inner=Score())),
        right=Repeated(times=3, inner=Score()),
    )
    smaller = with_steps(replace(flex(8), score_mod=both), 2).score_mod
    assert smaller == replace(both, left=Repeated(times=6, inner=Repeated(times=6, inner=Score())))
    assert with_steps(flex(8), 1) == flex(7)


def test_its_script_compares_two_compiles() -> None:
    program = flex(12)
    assert not list(problems(program))
    failure = judge(lambda n: 0.01 * 2**n).failure
    assert failure is not None
    text = repro(program, failure)
    compile(text, "repro.py", "exec")
    assert "for times in (2, 10, 12):" in text
    assert "range(times)" in text and "range(12)" not in text
    assert "assert seconds[2] < 2.0 * seconds[1], seconds" in text
    named = signature(failure, program)
    other = judge(lambda n: 0.02 * 2.5**n, times=10).failure
    assert other is not None
    assert signature(other, flex(10)).strong == named.strong
    assert named.title == "growing compile time of `score_mod` of flex attention (inductor)"


@pytest.mark.slow
def test_inductor_writes_out_every_use_of_a_value_in_a_score_mod(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "attnfuzz.actors.oracles.compile_time.LONG_S", 3.0
    )  # a fast machine takes less than 12 s
    (outcome,) = executor.run_programs([flex(12)])  # of 11, the last steps are a third, just
    assert outcome.failure is not None, outcome
    assert outcome.failure.kind is FailureKind.COMPILE_TIME
