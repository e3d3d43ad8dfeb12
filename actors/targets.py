"""Targets: where programs could run, and why each that cannot run here cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from actors.virtual import cann
from actors.virtual.cards import CARDS, INTERPRETED, NPUS, Card, Npu

PROBE_S = 120.0
_PROBE = """
import importlib.util, json
said = {
    name: importlib.util.find_spec(module) is not None
    for name, module in (("npu", "torch_npu"), ("triton", "triton"))
}
try:
    import torch
except Exception as error:
    said["error"] = f"{type(error).__name__}: {error}"
else:
    said["torch"] = str(torch.__version__)
    said["cuda_build"] = torch.backends.cuda.is_built()
    said["cuda"] = torch.cuda.is_available()
print(json.dumps(said))
"""


@dataclass(frozen=True, kw_only=True)
class TargetStatus:
    """Whether programs can run on target `name` with the interpreter `toolchain`; `reason` is one
    sentence that says what there is, or what is missing."""

    name: str
    can_run: bool
    reason: str
    toolchain: str


def targets(toolchain: str = sys.executable) -> list[TargetStatus]:
    """The state of every target on this machine. Imports torch in the toolchain, not here."""
    said = _probe(toolchain)
    return [
        TargetStatus(name=name, can_run=can_run, reason=reason, toolchain=toolchain)
        for name, (can_run, reason) in (
            ("cpu", _cpu(said)),
            ("cuda", _cuda(said)),
            ("npu", _npu(said)),
            *((name, _virtual(said, card, "runs no kernel")) for name, card in CARDS.items()),
            *((n, _virtual(said, card, "interprets them")) for n, card in INTERPRETED.items()),
            *((name, _virtual_npu(said, npu)) for name, npu in NPUS.items()),
        )
    ]


def _probe(toolchain: str) -> dict[str, Any]:
    try:
        ran = subprocess.run(
            [toolchain, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_S, check=False,
            stdin=subprocess.DEVNULL, env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )  # fmt: skip
    except OSError as error:
        return {"error": f"{toolchain} cannot be started: {error.strerror}"}
    except subprocess.TimeoutExpired:
        return {"error": f"importing torch took more than {PROBE_S:.0f} s"}
    try:
        return json.loads(ran.stdout.strip().rpartition("\n")[2])
    except ValueError:
        words = ran.stderr.strip().rpartition("\n")[2] or f"status {ran.returncode}"
        return {"error": f"the interpreter gave no answer: {words}"}


def _cpu(said: dict[str, Any]) -> tuple[bool, str]:
    if "error" in said:
        return False, f"torch cannot be imported: {said['error']}"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return False, f"there is no C++ compiler {compiler}, which Inductor needs"
    return True, f"torch {said['torch']} with {compiler}"


def _cuda(said: dict[str, Any]) -> tuple[bool, str]:
    if "error" in said:
        return False, f"torch cannot be imported: {said['error']}"
    if not said["cuda_build"]:
        return False, f"torch {said['torch']} is built without CUDA"
    if not said["cuda"]:
        return False, f"torch {said['torch']} finds no CUDA device"
    return False, "a CUDA device is there, but programs run on the CPU only so far"


def _npu(said: dict[str, Any]) -> tuple[bool, str]:
    if not said.get("npu", False):
        return False, "torch_npu is not installed in the toolchain"
    return False, "torch_npu is there, but programs run on the CPU only so far"


def _virtual(said: dict[str, Any], card: Card, then: str) -> tuple[bool, str]:
    """Compiles kernels for a card that need not be there, and `then`; the shim takes the place of
    torch's CUDA."""
    if "error" in said:
        return False, f"torch cannot be imported: {said['error']}"
    if said["cuda_build"]:
        return False, f"torch {said['torch']} is built with CUDA; this needs a CPU build"
    if not said.get("triton", False):
        return False, "triton is not installed in the toolchain"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return False, f"there is no C++ compiler {compiler}, which builds the virtual device"
    return True, f"virtual: compiles for {card.name} and {then}; torch {said['torch']}"


def _virtual_npu(said: dict[str, Any], npu: Npu) -> tuple[bool, str]:
    """The real torch_npu on fake tensors, over a stand-in for CANN."""
    if "error" in said:
        return False, f"torch cannot be imported: {said['error']}"
    if said["cuda_build"]:
        return False, f"torch {said['torch']} is built with CUDA; this needs a CPU build"
    if not said["npu"]:
        return False, "torch_npu is not installed in the toolchain"
    if cann.DRIVER.exists():
        return False, f"{cann.DRIVER} is there: this machine has an NPU, which is not to be faked"
    for tool in (os.environ.get("CXX", "g++"), "nm"):
        if shutil.which(tool) is None:
            return False, f"there is no {tool}, with which the stand-in for CANN is made"
    return True, f"virtual: torch_npu for {npu.name}, on fake tensors; torch {said['torch']}"
