"""Which lines `benchmarks/reach.py` counts, its comparison, and programs in its sandbox."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from rich.table import Table

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.kernels.specs import Flex, Handwritten
from attnfuzz.generators.model.program import Compile, Program
from benchmarks.reach_left import left
from benchmarks.reach_lines import (
    FUSION,
    PARTS,
    Report,
    attention_files,
    body_lines,
    replacements,
)
from benchmarks.reach_run import Plan, Runner, draw, torch_of, usual_profiles
from benchmarks.reach_tables import (
    FileReach,
    PatternReach,
    Reach,
    comparison,
    file_tables,
    left_table,
    read,
    write,
)

SOURCE = '''\
import math

NAMES = [name for name in dir(math)]


def first(x: int = 1) -> int:
    """Of nothing."""
    if x:
        return sum(
            [x, 1],
        )

    def inner() -> int:
        return x

    return inner()


class Kept:
    field = 3

    async def method(self) -> int:
        return self.field


def short() -> int: return 1
'''

CONTEXT_PARALLEL = "torch/distributed/tensor/experimental/_context_parallel/_attention.py"

REACH = Reach(
    torch="2.13.0", seed=1, targets=["cpu"], profiles=["eager"], statuses={"passed": 2}, counted=2,
    files={"torch/nn/attention/bias.py": FileReach(lines=[2, 3, 5, 8], reached=[2, 3], traced=[])},
    patterns={"_sfdp_pattern_1": PatternReach(), "_sfdp_pattern_2": PatternReach(programs=4)},
)  # fmt: skip


def test_lines_in_bodies_of_functions_count() -> None:
    assert body_lines(SOURCE) == {*range(7, 17), 23}
    assert body_lines(SOURCE, "Kept|sh.*") == {23}


def test_statements_are_reported_with_what_was_reached(tmp_path: Path) -> None:
    """A statement of several lines is its first; neither a docstring nor a module's line is one."""
    path = tmp_path / "torch" / "some.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    never = path.with_name("never.py")
    never.write_text(SOURCE)
    files = {"torch/some.py": path, "torch/never.py": never}
    report = Report(files, {"torch/some.py": {1, 3, 8, 10}}, tmp_path)
    assert report.statements("torch/some.py") == ([8, 9, 13, 14, 16, 23], [8, 9])
    assert report.statements("torch/never.py") == ([8, 9, 13, 14, 16, 23], [])
    report.write_html(tmp_path / "html")
    assert "33%" in (tmp_path / "html" / "index.html").read_text()


def cells(table: Table) -> dict[str, list[str]]:
    rows = zip(*(list(column.cells) for column in table.columns), strict=True)
    return {str(row[0]): [str(cell) for cell in row[1:]] for row in rows}


def test_two_measurements_are_compared(tmp_path: Path) -> None:
    write(REACH, tmp_path / "before.json")
    before = read(tmp_path / "before.json")
    assert before == REACH
    changed = FileReach(lines=[2, 3, 5, 8], reached=[3, 5, 8], traced=[5])
    after = replace(
        REACH,
        files={"torch/nn/attention/bias.py": changed},
        patterns={
            "_sfdp_pattern_1": PatternReach(programs=1),
            "_sfdp_pattern_2": PatternReach(programs=9),
        },
    )
    attention, patterns = (cells(table) for table in comparison(before, after))
    assert attention["torch/nn/attention/bias.py"] == ["50.0", "75.0", "2", "1"]
    assert attention["all"] == ["50.0", "75.0", "2", "1"]
    assert patterns == {"_sfdp_pattern_1": ["none", "1"]}
    with pytest.raises(UserError, match=r"torch 2\.13\.0 and 2\.12\.1"):
        comparison(before, replace(after, torch="2.12.1"))


def test_lines_that_no_program_comes_to_are_told_from_the_others() -> None:
    file = "torch/nn/attention/bias.py"
    assert left().lines(file, ["cpu"])["refusal"] == {131, 217, 291, 337, 374}
    assert 240 in left().lines(file, ["cpu"])["kernel"]
    assert 240 in left().lines(file, ["cpu", "virtual-sm90"])["kernel"]
    assert "kernel" not in left().lines(file, ["cpu", "cuda"])
    kernels = "torch/_inductor/kernel/flex/flex_decoding.py"
    assert "card" in left().lines(kernels, ["cpu"])
    assert "card" not in left().lines(kernels, ["cpu", "virtual-sm90"])
    some = FileReach(lines=[131, 135, 240, 300], reached=[131, 135], traced=[])
    measured = replace(REACH, torch="2.13.0+cpu", files={file: some, CONTEXT_PARALLEL: some})
    attention, parallel = (cells(table) for table in file_tables(measured))
    assert attention[file] == ["4", "2", "50.0", "3", "66.7", "0"]
    assert parallel[CONTEXT_PARALLEL] == ["4", "2", "50.0", "-", "-", "0"]
    told = left_table(measured)
    assert told is not None
    rows = {name.partition(":")[0]: row for name, row in cells(told).items()}
    assert rows["refusal"] == ["1", f"{file}:131"], "a passing program came there after all"
    assert rows["kernel"] == ["1", "none"]
    other = replace(measured, torch="2.12.0")
    assert left_table(other) is None
    assert cells(file_tables(other)[0])[file] == ["4", "2", "50.0", "-", "-", "0"]


def test_what_is_no_measurement_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"torch": 3}')
    with pytest.raises(UserError, match=r"other\.json: torch: .*--json"):
        read(path)


def plan(*targets: str) -> Plan:
    return Plan(
        seed=1, programs=2, seconds=None, targets=targets, profiles=usual_profiles(targets),
        workers=1, toolchain=sys.executable, failing=False,
    )  # fmt: skip


def test_profiles_that_need_a_package_are_left_out() -> None:
    usual = usual_profiles(["cpu"])
    assert {"eager", "inductor-flex", "ranks"} <= {*usual}
    assert not {"flash_attn", "npu_fusion_attention", "function"} & {*usual}
    on_card = {*usual_profiles(["virtual-sm90"])}
    assert {"ranks", "inductor-parallel"} <= on_card and "multihead_attention" not in on_card


def test_programs_are_drawn_of_every_profile_in_turn() -> None:
    drawn = draw(plan("cpu"))
    first = [next(drawn) for _ in range(6)]
    assert first == [pair for pair, _ in zip(draw(plan("cpu")), range(6), strict=False)]
    assert {target for _, target in first} == {"cpu"}
    often = draw(replace(plan("cpu"), profiles=["inductor-flex", "decode", "decode"]))
    kinds = [program.kernel.kind for program, _ in islice(often, 6)]
    assert kinds == ["flex", "graph", "graph"] * 2


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return attention_files(torch_of(sys.executable)[0])


def test_what_is_left_is_statements_of_this_torch_each_in_one_family(
    files: dict[str, Path],
) -> None:
    folder, version = torch_of(sys.executable)
    if version.partition("+")[0] != left().torch:
        pytest.skip(f"reach_left.yaml is about torch {left().torch}")
    for name in left().files:
        path = folder.parent / name
        families = left().lines(name, ["cpu"])
        statements = body_lines(path.read_text(), PARTS.get(name, ".*"))
        assert path in files.values()
        assert set(families) <= set(left().families)
        assert sum(map(len, families.values())) == len(set().union(*families.values())), name
        for lines in families.values():
            assert min(lines) in statements
            assert max(lines) in statements


def test_every_part_of_a_file_and_every_pattern_is_there(files: dict[str, Path]) -> None:
    assert len(files) > 20
    assert all(body_lines(files[name].read_text(), part) for name, part in PARTS.items())
    assert len(replacements(files[FUSION].read_text())) >= 24


@pytest.fixture(scope="module")
def runner(files: dict[str, Path]) -> Iterator[Runner]:
    with Scratch.create() as scratch:
        made = Runner(plan("cpu"), files, scratch.root, "reach")
        yield made
        made.close()


@pytest.mark.slow
def test_what_a_compiled_program_executes_is_seen(runner: Runner, files: dict[str, Path]) -> None:
    """The template runs in Inductor, below dynamo's callback; the API is what dynamo traces."""
    found = runner.run(Program(kernel=Flex(), compile=Compile()), "cpu", failing=False)
    assert found.statuses == {"passed": 1}
    assert found.executed[str(files["torch/_inductor/codegen/cpp_flex_attention_template.py"])]
    api = str(files["torch/nn/attention/flex_attention.py"])
    assert found.traced[api] - found.executed[api]
    assert not found.patterns


@pytest.mark.slow
def test_a_pattern_that_fires_is_named(runner: Runner) -> None:
    found = runner.run(Program(kernel=Handwritten(), compile=Compile()), "cpu", failing=False)
    assert found.patterns == {"_sfdp_pattern_1": 1}
    assert [*found.fired] == ["_sfdp_pattern_1_inference"]
