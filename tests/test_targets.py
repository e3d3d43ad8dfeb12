"""Targets: what is said of interpreters that can and cannot run programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.targets.availability import TargetStatus, targets
from attnfuzz.actors.targets.registry import TARGETS


def reasons(toolchain: str) -> dict[str, TargetStatus]:
    return {status.name: status for status in targets(toolchain)}


def said(**other: Any) -> str:
    """The probe's answer for torch's CPU build, but for what is `other`."""
    plain = {
        "torch": "2.13.0", "torch_npu": False, "triton": False, "cuda_build": False,
        "maker": "CUDA", "cuda": None, "xpu": None, "npu": None,
    }  # fmt: skip
    return json.dumps(plain | other)


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
    assert found.keys() == TARGETS.keys()
    assert not any(status.can_run for status in found.values())
    assert "No module named 'torch'" in found["cpu"].reason


@pytest.mark.parametrize("answer", ["", "not json", "[1"])
def test_an_interpreter_that_talks_nonsense_runs_nothing(tmp_path: Path, answer: str) -> None:
    assert not reasons(interpreter(tmp_path, answer))["cpu"].can_run


def test_no_interpreter_at_all() -> None:
    assert "/nowhere/python cannot be started" in reasons("/nowhere/python")["cpu"].reason


def test_without_a_compiler_the_cpu_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = interpreter(tmp_path, said())
    assert reasons(toolchain)["cpu"].can_run
    monkeypatch.setenv("CXX", "no-such-compiler")
    status = reasons(toolchain)["cpu"]
    assert not status.can_run and "no-such-compiler" in status.reason


GPU = {"cuda_build": True, "cuda": "NVIDIA H200"}
NPU = {"torch_npu": True, "npu": "Ascend910B1"}


@pytest.mark.parametrize(
    ("found", "target", "reason"),
    [
        ({}, "cuda", "torch 2.13.0 is built without CUDA"),
        ({"cuda_build": True}, "cuda", "torch 2.13.0 finds no CUDA device"),
        ({"cuda_build": True, "maker": "ROCm"}, "cuda", "torch 2.13.0 finds no ROCm device"),
        (GPU, "cuda", "triton is not installed in the toolchain"),
        ({}, "xpu", "torch 2.13.0 finds no XPU device"),
        ({}, "npu", "torch_npu is not installed in the toolchain"),
        (
            {"torch_npu": True, "npu_error": "ImportError: libhccl.so"},
            "npu",
            "torch 2.13.0 finds no NPU device: ImportError: libhccl.so",
        ),
    ],
)
def test_why_an_accelerator_cannot_run(
    tmp_path: Path, found: dict[str, Any], target: str, reason: str
) -> None:
    status = reasons(interpreter(tmp_path, said(**found)))[target]
    assert (status.can_run, status.reason) == (False, reason)


def test_accelerators_that_can_run_are_named(tmp_path: Path) -> None:
    found = reasons(interpreter(tmp_path, said(triton=True, **GPU, **NPU)))
    assert found["cuda"].can_run and found["cuda"].reason == "NVIDIA H200; torch 2.13.0"
    assert found["npu"].can_run and found["npu"].reason == "Ascend910B1; torch 2.13.0"
    assert not found["virtual-sm90"].can_run  # what is there is not to be faked


@pytest.mark.slow
def test_our_own_interpreter_runs_the_cpu() -> None:
    status = reasons(sys.executable)["cpu"]
    assert status.can_run
    assert status.reason.startswith("torch 2.")
