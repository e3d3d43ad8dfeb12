"""What a result depends on besides the program: versions and the machine, without importing torch.

What the *toolchain* is (its Python, torch, compiler) is found out in its own interpreter by the
sandbox; this is the driver's side.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.kernels.registry import REGISTRY, plugin_of
from attnfuzz.generators.reading.complaints import mismatch

if TYPE_CHECKING:
    from attnfuzz.generators.model.outcome import Outcome
    from attnfuzz.generators.model.program import Program

PACKAGES = sorted({plugin.package for plugin in REGISTRY.values() if plugin.package})
"""The distributions that kernels come in, where it is not torch."""

TOOLCHAIN = ("torch", "python", "triton", "cxx", *PACKAGES)
"""What a toolchain's failures depend on, in an environment that its sandbox reports."""

DISTRIBUTIONS = ("attnfuzz", "hypothesis", "ray", "torch")


def version(distribution: str) -> str:
    """The installed version of `distribution`, or "not installed"."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def environment() -> dict[str, str]:
    """Versions of what decides the programs and of what runs them, and the machine."""
    return {
        **{name: version(name) for name in DISTRIBUTIONS},
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
    }


ANSWER = "this is Python"
_ASK = f"""
import importlib.util as util
print({ANSWER!r}, "with torch" if util.find_spec("torch") else "without torch")
"""
ANSWER_S = 60.0


def check_interpreter(python: str, where: str, torch: bool = True) -> None:
    """Raises UserError unless `python`, which `where` names, is a Python interpreter, and one that
    has torch installed if `torch`. Imports nothing there; takes some milliseconds."""
    expected = mismatch(where, f"a Python interpreter{' with torch' if torch else ''}")
    try:
        ran = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, errors="replace", check=False,
            timeout=ANSWER_S, stdin=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"{expected}, but {python} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise UserError(f"{expected}, but {python} does not answer") from None
    answer = ran.stdout.strip().rpartition("\n")[2]
    if not answer.startswith(ANSWER):
        raise UserError(f"{expected}, but {python} is none")
    if torch and not answer.endswith("with torch"):
        raise UserError(f"{expected}, but in {python} no torch is installed")


def cpu_model() -> str:
    """The processor's name as Linux reports it, or its architecture."""
    return _of_cpu("model name") or platform.machine()


def _of_cpu(entry: str) -> str:
    """What Linux tells of the first processor under that name, or nothing."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = (line.partition(":")[2] for line in file if line.startswith(entry))
            return next(found, "").strip()
    except OSError:
        return ""


CPU_FLAGS = "cpu_flags"
"""In a case's environment: what Linux calls the instructions that its failure needs, "amx_bf16"."""


def lacks_cpu(needed: Mapping[str, str]) -> str | None:
    """Why this processor cannot show what was seen in an environment that says which instructions
    it `needed`, or None where it can."""
    wanted = needed.get(CPU_FLAGS, "").split()
    absent = [flag for flag in wanted if flag not in cpu_flags()]
    return f"it needs a CPU with {', '.join(absent)}" if absent else None


@cache
def cpu_flags() -> frozenset[str]:
    """The instructions that this processor has, as Linux names them; none where it does not say."""
    return frozenset(_of_cpu("flags").split())


def check_packages(
    kernels: Iterable[str],
    environment: Mapping[str, str],
    where: str,
    preload: Sequence[object] = (),
) -> None:
    """Raises UserError where one of `kernels` (kinds) comes in a package that the toolchain, whose
    `environment` is given, does not have, and that no `preload` file can have defined; `where` is
    what needs it."""
    for kernel in kernels:
        package = REGISTRY[kernel].package
        if package is not None and package not in environment and not preload:
            raise UserError(
                f"{where}: the kernel {kernel} needs the package {package}, which the toolchain "
                f"(Python {environment.get('python', '?')}) does not have; see "
                "docs/USING.md"
            )


def lacks_package(program: Program, outcome: Outcome) -> bool:
    """Whether the program ended where it imports its kernel's package."""
    package = plugin_of(program).package
    raised = outcome.failure.raised if outcome.failure else None
    if raised is None or not raised.type.endswith("ModuleNotFoundError"):
        return False
    return f"'{package}'" in raised.message


def toolchain_differences(
    recorded: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """What differs between the toolchains of two environments: {key: (then, now)}; "none" is what
    one of them does not have."""
    pairs = {key: (recorded.get(key, "none"), now.get(key, "none")) for key in TOOLCHAIN}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def differences(recorded: dict[str, str], now: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What differs between two environments, for the keys that both have: {key: (then, now)}."""
    return {
        key: (recorded[key], now[key])
        for key in sorted(recorded.keys() & now.keys())
        if recorded[key] != now[key]
    }
