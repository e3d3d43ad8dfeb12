"""The accelerators that a target can be, what a worker for one is pinned by, and how a zygote gets
ready for one that only its children may start.

Standard library only, and torch where it is imported already: zygotes and their children load this.
"""

from __future__ import annotations

import importlib
import json
import os
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


def make_known(target: str) -> dict[str, str]:
    """Imports what torch needs for a device, and has a forked process start it, as those of
    programs will: what it is called (`card`), and what kernels are compiled for it
    (`architecture`: "sm90"). Raises RuntimeError where that fails: there is none to be had, or what
    was imported has started it already."""
    importlib.import_module(DEVICES[target].module)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with open(writing, "w") as pipe:
                json.dump(_card(target), pipe)
        finally:  # nothing must get out of this process
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    told: dict[str, str] = json.loads(text or '{"error": "it ended without a word"}')
    if "error" in told:
        raise RuntimeError(f"a forked process cannot use a {target} device: {told['error']}")
    return told


def _card(target: str) -> dict[str, str]:
    torch = sys.modules["torch"]
    try:
        torch.empty(1, device=target)
        device = torch.get_device_module(target)
        name = device.get_device_name(0)
        if target != "cuda":
            return {"card": name, "architecture": name.lower()}
        if torch.version.hip:
            told = device.get_device_properties(0).gcnArchName.partition(":")[0]
        else:
            told = "sm{}{}".format(*device.get_device_capability(0))
        return {"card": name, "architecture": told}
    except Exception as error:
        return {"error": str(error).strip().partition("\n")[0] or type(error).__name__}
