"""The library that makes torch believe in one CUDA device: built once, loaded before torch.

A build fits one torch and one compiler, by which (and by its source) it is kept. It is loaded
into processes that will never have a real device in use.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("device.cpp")
FLAGS = ("-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden")


class ShimError(RuntimeError):
    """The library cannot be had; one sentence says why."""


def torch_folder() -> Path:
    """Where torch is installed, without importing it. Raises ShimError."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ShimError("torch is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def load(cache: Path) -> None:
    """Builds the library in `cache` unless it is there, and loads it. Raises ShimError when torch
    is imported already or could have a real card, or when there is no compiler or it fails."""
    if "torch" in sys.modules:
        raise ShimError("torch is imported already; the virtual device must come before it")
    torch = torch_folder()
    if not re.search(r"^cuda\b.*= None$", (torch / "version.py").read_text(), re.MULTILINE):
        raise ShimError("torch is built with CUDA; a virtual card needs a CPU build")
    library = built(torch, cache)
    # Torch's own library first and for all to see, or the symbols of ours find nothing.
    ctypes.CDLL(str(torch / "lib" / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def built(torch: Path, cache: Path) -> Path:
    """The library for that torch in `cache`, built there if need be. Raises ShimError."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        missing = os.environ.get("CXX", "g++")
        raise ShimError(f"there is no C++ compiler {missing}, which builds the virtual device")
    library = cache / f"device-{_digest(torch, compiler)}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(suffix=".so", dir=cache)
        os.close(handle)
        try:
            _compile(compiler, torch, Path(unfinished))
            os.replace(unfinished, library)  # whole or not at all
        finally:
            Path(unfinished).unlink(missing_ok=True)
    return library


def _digest(torch: Path, compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    parts = (
        SOURCE.read_text(), (torch / "version.py").read_text(), version.stdout, " ".join(FLAGS),
    )  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, torch: Path, library: Path) -> None:
    include = torch / "include"
    command = [
        compiler, *FLAGS, f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", str(SOURCE),
        "-o", str(library), f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        said = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr)
        raise ShimError(f"{compiler} cannot build the virtual device: {said[:400]}")
