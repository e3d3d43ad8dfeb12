"""Targets: where programs could run, and why each that cannot run here cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from attnfuzz.actors.targets.devices import DEVICES
from attnfuzz.actors.targets.virtual import cann
from attnfuzz.actors.targets.virtual.cards import CARDS, INTERPRETED, NPUS, Card, Npu

PROBE_S = 120.0
_PROBE = """
import importlib, importlib.util, json
said = {
    name: importlib.util.find_spec(module) is not None
    for name, module in (("torch_npu", "torch_npu"), ("triton", "triton"))
}
try:
    import torch
except Exception as error:
    said["error"] = f"{type(error).__name__}: {error}"
else:
    said["torch"] = str(torch.__version__)
    said["cuda_build"] = torch.backends.cuda.is_built()
    said["maker"] = "ROCm" if torch.version.hip else "CUDA"
    for name, module in (("cuda", "torch"), ("xpu", "torch"), ("npu", "torch_npu")):
        try:
            importlib.import_module(module)
            device = torch.get_device_module(name)
            said[name] = device.get_device_name(0) if device.is_available() else None
        except Exception as error:
            said[name], said[f"{name}_error"] = None, f"{type(error).__name__}: {error}"[:300]
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
            *((name, _device(said, name)) for name in DEVICES),
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


def _device(said: dict[str, Any], name: str) -> tuple[bool, str]:
    if "error" in said:
        return False, f"torch cannot be imported: {said['error']}"
    what = {"cuda": said["maker"], "xpu": "XPU", "npu": "NPU"}[name]
    if name == "cuda" and not said["cuda_build"]:
        return False, f"torch {said['torch']} is built without CUDA"
    if name == "npu" and not said["torch_npu"]:
        return False, "torch_npu is not installed in the toolchain"
    if said[name] is None:
        why = f": {said[f'{name}_error']}" if f"{name}_error" in said else ""
        return False, f"torch {said['torch']} finds no {what} device{why}"
    if not said["triton"] and name != "npu":
        return False, "triton is not installed in the toolchain"
    return True, f"{said[name]}; torch {said['torch']}"


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
    if not said["torch_npu"]:
        return False, "torch_npu is not installed in the toolchain"
    if cann.DRIVER.exists():
        return False, f"{cann.DRIVER} is there: this machine has an NPU, which is not to be faked"
    for tool in (os.environ.get("CXX", "g++"), "nm"):
        if shutil.which(tool) is None:
            return False, f"there is no {tool}, with which the stand-in for CANN is made"
    return True, f"virtual: torch_npu for {npu.name}, on fake tensors; torch {said['torch']}"
