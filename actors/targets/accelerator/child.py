"""What a zygote and its children do for an accelerator that is there.

The zygote must not start the device: each child does that itself.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfuzz.actors.targets.accelerator.devices import DEVICES, Device
from attnfuzz.actors.targets.child_target import ChildTarget

if TYPE_CHECKING:
    from attnfuzz.actors.child.execute import Execution
    from attnfuzz.actors.child.phases import Phases


@dataclass(frozen=True)
class AcceleratorChild(ChildTarget):
    """Programs run on `device`, which torch calls `name`."""

    name: str
    device: Device

    def importing(self) -> AbstractContextManager[None]:
        return devices_counted() if self.name == "cuda" else nullcontext()

    def warm_up(self, headers: Path) -> dict[str, str]:
        return first_use(self.name, self.device)

    def execution(self, settings: dict[str, Any], phases: Phases) -> Execution:
        from attnfuzz.actors.targets.accelerator.execution import DeviceExecution

        return DeviceExecution(settings, phases, self.name, self.device)


CHILDREN = {name: AcceleratorChild(name, device) for name, device in DEVICES.items()}


@contextmanager
def devices_counted() -> Iterator[None]:
    """Modules of Inductor ask for the number of cards as they are imported. NVML, which torch asks
    then, leaves a thread behind (driver 580): a forked process asks it, once for all of them."""
    cuda: Any = importlib.import_module("torch").cuda
    asks = cuda.device_count
    count = int(_forked(lambda: {"count": str(asks())}).get("count", 0))
    cuda.device_count = lambda: count
    try:
        yield
    finally:
        cuda.device_count = asks


def first_use(name: str, device: Device) -> dict[str, str]:
    """Imports what torch needs for the device, and has a forked process start it, as those of
    programs will: what it is called (`card`), and what kernels are compiled for it
    (`architecture`: "sm90"). Raises RuntimeError where that fails: there is none to be had, or what
    was imported has started it already."""
    importlib.import_module(device.module)
    found = _forked(lambda: _describe(name))
    if "error" in found:
        raise RuntimeError(f"a forked process cannot use a {name} device: {found['error']}")
    return found


def _forked(ask: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What `ask` gives in a forked process; an `error` where it ends before that."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with open(writing, "w") as pipe:
                json.dump(ask(), pipe)
        finally:  # nothing must get out of this process
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    found: dict[str, str] = json.loads(text or '{"error": "it ended without a word"}')
    return found


def _describe(name: str) -> dict[str, str]:
    """The `card` and its `architecture`; an `error` where the device cannot be used."""
    torch = sys.modules["torch"]
    try:
        torch.empty(1, device=name)
        device = torch.get_device_module(name)
        card = device.get_device_name(0)
        if name != "cuda":
            return {"card": card, "architecture": card.lower()}
        if torch.version.hip:
            architecture = device.get_device_properties(0).gcnArchName.partition(":")[0]
        else:
            architecture = "sm{}{}".format(*device.get_device_capability(0))
        return {"card": card, "architecture": architecture}
    except Exception as error:
        return {"error": str(error).strip().partition("\n")[0] or type(error).__name__}
