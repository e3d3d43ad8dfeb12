"""The library that makes torch believe in one CUDA device: built once, loaded before torch.

It is loaded into processes that will never have a real device in use: they see none (`HIDE_CARDS`).
A CPU build of torch has nothing in its place. Of a CUDA build it takes the place of the hooks, the
guard and the choice of SDPA's kernel, so that the driver, which need not be there, is never asked.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path

from attnfuzz.actors.targets.stand_in_library import ShimError, kept, package_folder

SOURCES = [Path(__file__).with_name(name) for name in ("device.cpp", "sdpa.cpp")]
FLAGS = ("-std=c++20", "-O1", "-fvisibility=hidden")


def load(cache: Path, capability: tuple[int, int] | None = None) -> None:
    """Builds the library in `cache` unless it is there, loads it, and imports torch. SDPA's kernel
    is chosen as on a card of that compute capability; without one it is the math path. Raises
    ShimError when torch is imported already, or when there is no compiler or it fails."""
    if "torch" in sys.modules:
        raise ShimError("torch is imported already; the virtual device must come before it")
    torch = package_folder("torch")
    library = built(torch, cache)
    # Torch's own library first and for all to see, or the symbols of ours find nothing.
    ctypes.CDLL(str(torch / "lib" / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    importlib.import_module("torch")  # of a CUDA build, what takes the place of ours
    loaded.guard_device()
    loaded.choose_sdpa_as_on(*(capability or (0, 0)))


def built(torch: Path, cache: Path) -> Path:
    """The library for the torch in that folder, in `cache`. Raises ShimError."""
    include = torch / "include"
    options = (
        *FLAGS, f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", f"-L{torch / 'lib'}",
        "-ltorch_cpu", "-lc10",
    )  # fmt: skip
    text = "\n".join(source.read_text() for source in SOURCES)
    version = (torch / "version.py").read_text()
    return kept(cache, "device", (version,), options, text)
