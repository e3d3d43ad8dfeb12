"""Targets: what is said of interpreters that can and cannot run programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from actors.targets import TargetStatus, targets
from actors.virtual.cards import CARDS, INTERPRETED, NPUS


def reasons(toolchain: str) -> dict[str, TargetStatus]:
    return {status.name: status for status in targets(toolchain)}


def interpreter(folder: Path, answer: str) -> str:
    """An executable that answers the probe with `answer`."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_without_torch_runs_nothing(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    found = reasons(str(bare))
    count = 3 + len(CARDS) + len(INTERPRETED) + len(NPUS)
    assert [status.can_run for status in found.values()] == [False] * count
    assert "No module named 'torch'" in found["cpu"].reason


@pytest.mark.parametrize("answer", ["", "not json", "[1"])
def test_an_interpreter_that_talks_nonsense_runs_nothing(tmp_path: Path, answer: str) -> None:
    assert not reasons(interpreter(tmp_path, answer))["cpu"].can_run


def test_no_interpreter_at_all() -> None:
    assert "/nowhere/python cannot be started" in reasons("/nowhere/python")["cpu"].reason


def test_without_a_compiler_the_cpu_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"npu": false, "torch": "2.13.0", "cuda_build": false, "cuda": false}'
    toolchain = interpreter(tmp_path, said)
    assert reasons(toolchain)["cpu"].can_run
    monkeypatch.setenv("CXX", "no-such-compiler")
    status = reasons(toolchain)["cpu"]
    assert not status.can_run and "no-such-compiler" in status.reason


@pytest.mark.parametrize(
    ("said", "cuda", "npu"),
    [
        ('"npu": false, "cuda_build": false, "cuda": false', "without CUDA", "not installed"),
        ('"npu": true, "cuda_build": true, "cuda": false', "no CUDA device", "is there"),
        ('"npu": true, "cuda_build": true, "cuda": true', "so far", "so far"),
    ],
)
def test_why_an_accelerator_cannot_run(tmp_path: Path, said: str, cuda: str, npu: str) -> None:
    found = reasons(interpreter(tmp_path, '{"torch": "2.13.0", ' + said + "}"))
    assert cuda in found["cuda"].reason
    assert npu in found["npu"].reason
    assert not found["cuda"].can_run and not found["npu"].can_run


@pytest.mark.slow
def test_our_own_interpreter_runs_the_cpu() -> None:
    status = reasons(sys.executable)["cpu"]
    assert status.can_run
    assert status.reason.startswith("torch 2.")
