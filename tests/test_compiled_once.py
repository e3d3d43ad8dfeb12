"""What compilers made is taken again where they would make the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.sandbox import compiled_once
from attnfuzz.actors.sandbox.compiled_once import _Subprocess
from attnfuzz.actors.sandbox.headers import drop_headers_since, is_whole
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.scores import Repeated, Score
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels

COMPILER = """#!/bin/sh
echo "$@" >> "{calls}"
for last; do
  test "$last" = -fuse-ld=none && exit 1
  test "$last" = -fuse-ld=some || output=$last
done
cat "$1" > "$output"
! grep -q error "$1"
"""


PROGRAM = Program(kernel=Flex(), compile=Compile())
CPU = TARGETS["cpu"]


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """What the compiler was called with, a line each."""
    script = tmp_path / "cxx"
    script.write_text(COMPILER.format(calls=tmp_path / "calls"))
    script.chmod(0o755)
    (tmp_path / "calls").touch()
    (tmp_path / "kept").mkdir()
    return tmp_path / "calls"


def compile_as(
    calls: Path,
    program: str,
    text: str,
    *options: str,
    name: str = "a.so",
    linker: str | None = None,
) -> Path:
    """The output of compiling `text` in the folder of a program, as Inductor does it."""
    folder = calls.parent / program
    (folder / "inductor").mkdir(parents=True, exist_ok=True)
    source, output = folder / "inductor" / "a.cpp", folder / "inductor" / name
    source.write_text(text)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    one: Any = _Subprocess(calls.parent / "kept", linker)
    command = [str(calls.parent / "cxx"), str(source), *options, "-o", str(output)]
    one.run(command, cwd=str(folder), check=True, stdout=subprocess.PIPE)
    return output


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")


def test_the_same_text_with_the_same_options_is_compiled_once(calls: Path) -> None:
    first = compile_as(calls, "first", "int x;", "-O3")
    again = compile_as(calls, "second", "int x;", "-O3")
    assert again.read_bytes() == first.read_bytes() == b"int x;"
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "options", "name"),
    [("int y;", ("-O3",), "a.so"), ("int x;", ("-O1",), "a.so"), ("int x;", ("-O3",), "a.o")],
)
def test_other_texts_options_and_outputs_are_compiled(
    calls: Path, text: str, options: tuple[str, ...], name: str
) -> None:
    compile_as(calls, "first", "int x;", "-O3")
    assert compile_as(calls, "second", text, *options, name=name).read_text() == text
    assert len(calls.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("linker", "name", "called"),
    [("some", "a.so", [True]), ("some", "a.o", [False]), ("none", "a.so", [True, False])],
)
def test_another_linker_is_asked_first(
    calls: Path, linker: str, name: str, called: list[bool]
) -> None:
    made = compile_as(calls, "first", "int x;", name=name, linker=linker)
    assert made.read_text() == "int x;"
    lines = calls.read_text().splitlines()
    assert [line.endswith(f"-fuse-ld={linker}") for line in lines] == called


def test_what_does_not_compile_is_not_kept(calls: Path) -> None:
    for program in ("first", "second"):
        with pytest.raises(subprocess.CalledProcessError):
            compile_as(calls, program, "error")
    assert len(calls.read_text().splitlines()) == 2


def test_what_was_not_used_for_longest_goes_first(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_once, "MOST_BYTES", 13)
    for age, text in enumerate(("int x;", "int y;")):
        compile_as(calls, "one", text)
        for kept in (calls.parent / "kept").iterdir():
            os.utime(kept, (kept.stat().st_atime, kept.stat().st_mtime - 10 + age))
    compile_as(calls, "one", "int z;")
    compile_as(calls, "one", "int y;")
    assert len(calls.read_text().splitlines()) == 3
    compile_as(calls, "one", "int x;")
    assert len(calls.read_text().splitlines()) == 4


def test_a_precompiled_header_is_there_whole(calls: Path) -> None:
    built = compile_as(calls, "first", "int x;", name="a.h.gch")
    assert built.read_text() == "int x;" and is_whole(built)
    [line] = calls.read_text().splitlines()
    assert not line.endswith(str(built))
    assert [one.name for one in built.parent.glob("*.gch")] == [built.name]


def test_a_header_that_cannot_be_precompiled_fails_in_the_words_of_torch(calls: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        compile_as(calls, "first", "error", name="a.h.gch")
    header = calls.parent / "first" / "inductor" / "a.h.gch"
    assert caught.value.cmd[-1] == str(header) and not is_whole(header)


def test_a_header_whose_compiler_was_killed_is_not_there(tmp_path: Path) -> None:
    script, header = tmp_path / "cxx", tmp_path / "a.h.gch"
    script.write_text('#!/bin/sh\necho half > "$2"\nkill -9 $PPID\n')
    script.chmod(0o755)
    code = (
        "from pathlib import Path; from attnfuzz.actors.sandbox.headers import precompile\n"
        f"precompile([{str(script)!r}, '-o', {str(header)!r}], Path({str(header)!r}), {{}})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [one.read_text() for one in tmp_path.glob("*.gch")] == ["half\n"]
    assert not header.exists()
    drop_headers_since(tmp_path, 0.0)
    assert not list(tmp_path.glob("*.gch*"))


def test_other_calls_are_as_they_are(tmp_path: Path) -> None:
    one: Any = _Subprocess(tmp_path)
    assert one.run(["echo", "a"], stdout=subprocess.PIPE).stdout == b"a\n"
    assert one.CalledProcessError is subprocess.CalledProcessError
    assert not list(tmp_path.iterdir())


def test_a_program_whose_compile_time_is_judged_has_everything_compiled() -> None:
    repeated = replace(PROGRAM, score_mod=Repeated(times=2, inner=Score()))
    jobs = [CPU.job(one, (), Deadlines()) for one in (PROGRAM, repeated)]
    assert [job.to_message("", ())["compiles_anew"] for job in jobs] == [False, True]


def kernel_of(kernels: Path, name: str, size: int, age_s: int) -> Path:
    """What Triton keeps of a kernel."""
    there = kernels / name
    there.mkdir(parents=True)
    (there / "kernel.cubin").write_bytes(b"0" * size)
    os.utime(there, (0, 1_000_000 - age_s))
    return there


def test_the_oldest_kernels_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_once, "MOST_BYTES", 10)
    kernels = tmp_path / compiled_once.KERNELS
    new, old, oldest = (
        kernel_of(kernels, n, 5, age) for n, age in zip("abc", (0, 1, 2), strict=True)
    )
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    compiled_once.keep_kernels(kernels)
    assert os.environ["TRITON_CACHE_DIR"] == str(kernels)
    assert sorted(kernels.iterdir()) == [new, old] and not oldest.exists()


def test_without_room_a_program_has_a_cache_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "its own")
    (tmp_path / "file").touch()
    compiled_once.keep_kernels(tmp_path / "file" / compiled_once.KERNELS)
    assert os.environ["TRITON_CACHE_DIR"] == "its own"


@pytest.mark.slow
@needs_kernels
def test_a_cards_kernels_are_compiled_once() -> None:
    def kept() -> dict[Path, int]:
        there = scratch.root.rglob(f"{compiled_once.KERNELS}/*/*.cubin")
        return {path: path.stat().st_ino for path in there}

    card = TARGETS["virtual-sm90"]
    program = replace(PROGRAM, shape=replace(PROGRAM.shape, q_len=128, kv_len=128, head_dim=16))
    with (
        Scratch.create() as scratch,
        Sandbox(str(TOOLCHAIN), target=card.name, scratch=scratch.root) as sandbox,
    ):
        text, job = card.source(program), card.job(program, for_program(program), Deadlines())
        first = sandbox.run(text, job)
        made = kept()
        again = sandbox.run(text, job)
        assert (first.status, again.status) == ("passed", "passed")
        assert made and kept() == made
        assert first.features == again.features
        assert sandbox.run(text, replace(job, compiles_anew=True)).status == "passed"
        assert kept() == made


@pytest.mark.slow
def test_a_program_that_is_run_again_has_its_kernels_compiled_once() -> None:
    def kept() -> dict[Path, int]:
        there = scratch.root.rglob(f"{compiled_once.KEPT}/*")
        return {path: path.stat().st_ino for path in there if not path.suffix}

    with Scratch.create() as scratch, Sandbox(scratch=scratch.root) as sandbox:
        text, job = CPU.source(PROGRAM), CPU.job(PROGRAM, for_program(PROGRAM), Deadlines())
        first = sandbox.run(text, job)
        made = kept()
        again = sandbox.run(text, job)
        assert (first.status, again.status) == ("passed", "passed")
        assert made and kept() == made
        assert first.features == again.features
        assert sandbox.run(text, replace(job, compiles_anew=True)).status == "passed"
        assert kept() == made
    assert not scratch.root.exists()
