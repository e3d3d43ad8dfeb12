"""The toolchain that `make systems` makes, and the mark of tests that need it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TOOLCHAIN = Path(__file__).resolve().parents[2] / ".venv-systems" / "bin" / "python"

NO_TOOLCHAIN = "there is no .venv-systems; `make systems` makes it"

needs_systems = pytest.mark.skipif(not os.access(TOOLCHAIN, os.X_OK), reason=NO_TOOLCHAIN)
