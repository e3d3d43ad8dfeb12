"""The machine's C++ compiler, which torch and our own libraries use.

Standard library only: the toolchain's interpreter loads this.
"""

from __future__ import annotations

import os
import shutil
import subprocess


def compiler_version() -> str:
    """The first line that the C++ compiler ($CXX, or g++) prints of itself; "none" without one."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        return "none"
    ran = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return ran.stdout.partition("\n")[0]
