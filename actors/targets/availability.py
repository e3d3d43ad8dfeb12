"""Targets: where programs could run, and why each that cannot run here cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.targets.target import Probe

PROBE_S = 120.0
_PROBE = """
import importlib, importlib.util, json, platform
found = {
    name: importlib.util.find_spec(module) is not None
    for name, module in (("torch_npu", "torch_npu"), ("triton", "triton"))
}
found["python"] = platform.python_version()
try:
    import torch
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
else:
    found["torch"] = str(torch.__version__)
    found["cuda_build"] = torch.backends.cuda.is_built()
    found["maker"] = "ROCm" if torch.version.hip else "CUDA"
    for name, module in (("cuda", "torch"), ("xpu", "torch"), ("npu", "torch_npu")):
        try:
            importlib.import_module(module)
            device = torch.get_device_module(name)
            found[name] = device.get_device_name(0) if device.is_available() else None
        except Exception as error:
            found[name], found[f"{name}_error"] = None, f"{type(error).__name__}: {error}"[:300]
print(json.dumps(found))
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
    return statuses(probe(toolchain), toolchain)


def statuses(probed: Probe, toolchain: str) -> list[TargetStatus]:
    """The same of an interpreter that was probed."""
    found = []
    for name, target in TARGETS.items():
        can_run, reason = target.availability(probed)
        found.append(TargetStatus(name=name, can_run=can_run, reason=reason, toolchain=toolchain))
    return found


def probe(toolchain: str) -> dict[str, Any]:
    """What that interpreter has and finds, see `_PROBE`; an "error" where torch is not to be
    imported."""
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
