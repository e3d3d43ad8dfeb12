"""Libraries that stand in for a device's own: built once with the machine's compiler, and kept."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


class ShimError(RuntimeError):
    """A library cannot be had; one sentence says why."""


def package_folder(name: str) -> Path:
    """Where a package is installed, without importing it. Raises ShimError."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ShimError(f"{name} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def without_cuda(torch: Path) -> Path:
    """`torch`, the folder of a torch that can have no real card. Raises ShimError."""
    if not re.search(r"^cuda\b.*= None$", (torch / "version.py").read_text(), re.MULTILINE):
        raise ShimError("torch is built with CUDA; a virtual card needs a CPU build")
    return torch


def kept(cache: Path, name: str, parts: Sequence[str], options: Sequence[str], text: str) -> Path:
    """The shared library that the compiler makes of the C++ `text` with `options`, in `cache`,
    built there if need be; `parts` are what else decides what it is. Raises ShimError when there
    is no compiler, or it fails."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        missing = os.environ.get("CXX", "g++")
        raise ShimError(f"there is no C++ compiler {missing}, which builds the virtual device")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    decided = "\0".join((text, version.stdout, *options, *parts))
    digest = hashlib.sha256(decided.encode()).hexdigest()[:16]
    library = cache / f"{name}-{digest}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(suffix=".so", dir=cache)
        os.close(handle)
        try:
            _compile(compiler, options, text, unfinished)
            os.replace(unfinished, library)  # whole or not at all
        finally:
            Path(unfinished).unlink(missing_ok=True)
    return library


def _compile(compiler: str, options: Sequence[str], text: str, library: str) -> None:
    ran = subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", "-o", library, *options],
        input=text, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        reason = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr)
        raise ShimError(f"{compiler} cannot build the virtual device: {reason[:400]}")
