"""A program at other layers and with other kernels, and the matrix of what they do."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.fuzz.pool.tasks import RunTask, TaskFailed
from attnfuzz.fuzz.reduce.variants import PASSES, Releases, Variants, variants
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Handwritten, Sdpa
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import Failure, FailureKind, Outcome, Phase
from attnfuzz.generators.model.program import Compile, Program, Shape
from attnfuzz.generators.model.validity import problems

PASSED = Outcome(status="passed")
FAILED = Outcome(status="failed", failure=Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK))
OTHER = Outcome(status="failed", failure=Failure(kind=FailureKind.CRASH, phase=Phase.FORWARD))


def test_every_variant_is_a_program_and_none_is_the_program_itself() -> None:
    for program in (
        Program(),
        Program(compile=Compile()),
        Program(kernel=Flex(block_mask=BlockMaskSpec()), mask=Causal(), compile=Compile()),
        Program(kernel=Handwritten(), shape=Shape(q_heads=4, kv_heads=2)),
    ):
        found = variants(program)
        assert len({program_id(each) for each in found.values()}) == len(found) >= 4
        assert program_id(program) not in {program_id(each) for each in found.values()}
        assert not [name for name, each in found.items() if problems(each)]


def test_layers_and_kernels_are_among_them() -> None:
    names = set(variants(Program(mask=Causal(), compile=Compile())))
    assert {"layer=eager", "layer=dynamo", "layer=aot_eager", "kernel=flex"} <= names
    assert {"kernel=handwritten", "kernel=sdpa.math", "dynamic=True"} <= names


def test_a_variant_keeps_the_rest_of_the_program() -> None:
    program = Program(kernel=Sdpa(scale=0.5), mask=Causal(), compile=Compile(dynamic=True))
    found = variants(program)
    assert found["layer=eager"] == replace(program, compile=None)
    assert found["kernel=handwritten"].kernel == Handwritten(scale=0.5)


def matrix_of(answers: dict[str, list[Outcome]]) -> dict[str, str]:
    programs = {name: Program(seed=place + 1) for place, name in enumerate(answers)}
    names = {program_id(program): name for name, program in programs.items()}
    stage = Variants(programs, lambda program, outcome: outcome == FAILED)
    while (task := stage.next_task()) is not None:
        assert isinstance(task, RunTask)
        stage.report(task, [answers[names[program_id(task.programs[0])]].pop(0)])
    assert stage.finished
    return stage.matrix


def test_the_matrix_tells_failing_from_flaky_and_other_failures() -> None:
    rejected = Outcome(status="rejected", rejection="by design")
    assert matrix_of(
        {
            "a": [PASSED],
            "b": [FAILED, FAILED],
            "c": [FAILED, PASSED],
            "d": [OTHER, OTHER],
            "e": [rejected],
        }
    ) == {"a": "passes", "b": "fails", "c": "flaky", "d": "fails otherwise", "e": "rejects"}


def test_a_program_has_a_column_for_each_other_target() -> None:
    program = Program(seed=1)
    stage = Variants(
        {"a": Program(seed=2)},
        lambda program, outcome: outcome == FAILED,
        "virtual-sm86",
        {"cpu": program, "virtual-sm90": program},
    )
    answers = {"cpu": PASSED, "virtual-sm90": FAILED, "virtual-sm86": PASSED}
    while (task := stage.next_task()) is not None:
        assert isinstance(task, RunTask) and task.settings.target is not None
        stage.report(task, [answers[task.settings.target]])
    assert stage.matrix == {
        "a": "passes", "target=cpu": "passes", "target=virtual-sm90": "fails"
    }  # fmt: skip


def test_a_defect_of_ours_is_no_failure_of_the_variant() -> None:
    stage = Variants({"a": Program(seed=1)}, lambda program, outcome: True)
    task = stage.next_task()
    assert task is not None
    stage.report(task, TaskFailed("Traceback"))
    assert stage.matrix == {"a": "not judged"}
    assert stage.finished


def test_nothing_to_vary_is_finished_at_once() -> None:
    assert Variants({}, lambda program, outcome: True).finished


def with_releases(answers: dict[str, list[Outcome]], runs: int) -> dict[str, str]:
    """The matrix of a program with other toolchains, whose interpreters are named as they are."""
    program, asked = Program(), dict(answers)
    judge = lambda one, outcome: outcome == FAILED  # noqa: E731
    releases = Releases(program, {name: name for name in answers}, runs, judge)
    stage = Variants({}, lambda one, outcome: False, releases=releases)
    while (task := stage.next_task()) is not None:
        assert isinstance(task, RunTask) and task.programs == (program,) * runs
        assert task.settings.until == "failed" and task.settings.toolchain is not None
        stage.report(task, list(asked.pop(task.settings.toolchain)))
    assert stage.finished and not asked
    return stage.matrix


def test_other_toolchains_are_told_by_the_last_run() -> None:
    not_run = Outcome(status="not_run", rejection="torch cannot be imported")
    found = with_releases(
        {
            "baseline=old": [PASSED, PASSED, PASSED],
            "toolchain=a": [PASSED, FAILED],
            "toolchain=b": [OTHER],
            "toolchain=c": [not_run],
            "toolchain=d": [],
        },
        runs=3,
    )
    assert found == {
        "baseline=old": PASSES,
        "toolchain=a": "fails",
        "toolchain=b": "fails otherwise",
        "toolchain=c": "not judged",
        "toolchain=d": "not judged",
    }


def test_a_toolchain_whose_worker_died_is_not_judged() -> None:
    releases = Releases(Program(), {"baseline=old": "/python"}, 1, lambda one, outcome: True)
    stage = Variants({}, lambda one, outcome: True, releases=releases)
    task = stage.next_task()
    assert task is not None
    stage.report(task, TaskFailed("it raised"))
    assert stage.finished and stage.matrix == {"baseline=old": "not judged"}
