"""Commands with mounts of their own, such as a disk that is full or cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def own_mounts() -> list[str]:
    """The command that runs another with mounts of its own; skips where the machine forbids it."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare command")
    for command in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        probe = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(probe, capture_output=True).returncode == 0:
            return command
    pytest.skip("mounting is forbidden here, in a user namespace too")


def mounted(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a shell script with mounts of its own."""
    return subprocess.run(
        [*own_mounts(), "sh", "-c", script, "sh", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
