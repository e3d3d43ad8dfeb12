"""The accelerators that a target can be, what a worker for one is pinned by, and how a zygote gets
ready for one that only its children may start.

Standard library only, and torch where it is imported already: zygotes and their children load this.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """A kind of accelerator. `resource` is what Ray calls one; `visible` are the environment
    variables that say which of them a process sees, of which Ray sets the one of the maker's at
    hand; `module` is what has to be imported before torch knows it."""

    resource: str
    visible: tuple[str, ...]
    module: str = "torch"


DEVICES = {
    "cuda": Device(
        resource="GPU",
        visible=("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    ),
    "xpu": Device(resource="GPU", visible=("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR")),
    "npu": Device(resource="NPU", visible=("ASCEND_RT_VISIBLE_DEVICES",), module="torch_npu"),
}
"""By target, which has the name that torch gives the device. ROCm is "cuda" to torch."""


def resources_of(targets: Iterable[str]) -> frozenset[str]:
    """What Ray calls that of which a worker for all of `targets` needs a share."""
    return frozenset(DEVICES[name].resource for name in targets if name in DEVICES)


def not_pinned(
    targets: Iterable[str],
    assigned: Mapping[str, Iterable[str]],
    environment: Mapping[str, str] = os.environ,
) -> str | None:
    """Why a worker for `targets` does not see just what Ray has `assigned` to it (ids by resource),
    in one sentence; None where it does. Two that believe to be alone on a device would report each
    other's lack of memory."""
    for name in targets:
        if name not in DEVICES:
            continue
        device = DEVICES[name]
        ids = [str(one) for one in assigned.get(device.resource, ())]
        seen = {key: environment[key] for key in device.visible if key in environment}
        if not ids:
            return f"target {name}: Ray has given this worker no {device.resource}"
        if not any(_ids(text) == ids for text in seen.values()):
            told = ", ".join(f"{key}={text}" for key, text in seen.items()) or "no variable set"
            return f"target {name}: expected to see {device.resource} {','.join(ids)}, got {told}"
    return None


def _ids(text: str) -> list[str]:
    """The devices that a variable names: "0,1", or "level_zero:0,1"."""
    return text.rpartition(":")[2].split(",")


def visible(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that say which devices a process sees, as they are."""
    names = {name for device in DEVICES.values() for name in device.visible}
    return {name: environment[name] for name in sorted(names) if name in environment}


_CARD = """
import importlib, json, sys
import torch
importlib.import_module(sys.argv[2])
device = torch.get_device_module(sys.argv[1])
name, properties = device.get_device_name(0), device.get_device_properties(0)
if sys.argv[1] == "npu":
    made_for = name.lower()
elif torch.version.hip:
    made_for = properties.gcnArchName.partition(":")[0]
else:
    made_for = "".join(["sm", *map(str, device.get_device_capability(0))])
print(json.dumps({"card": name, "architecture": made_for}))
"""


def card_there(target: str) -> dict[str, str]:
    """What the first device that this process sees is called (`card`), and what kernels are
    compiled for it (`architecture`: "sm90"), asked by a process of its own. Raises RuntimeError
    where it cannot be used."""
    asked = subprocess.run(
        [sys.executable, "-c", _CARD, target, DEVICES[target].module],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if asked.returncode:
        why = asked.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"no {target} device can be used: {why}")
    return json.loads(asked.stdout.strip().rpartition("\n")[2])


def make_known(target: str) -> None:
    """Imports what torch needs for a device. Raises RuntimeError where a process forked afterwards
    cannot start it: what was imported has done so already."""
    importlib.import_module(DEVICES[target].module)
    pid = os.fork()
    if pid == 0:
        try:
            sys.modules["torch"].empty(1, device=target)
        except BaseException:  # whatever it is, it must not get out of this process
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError(f"a forked process cannot start the {target} device")
