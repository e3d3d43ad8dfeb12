"""The last lines of a run of the tests say what did not run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
TESTS = """
import pytest

@pytest.mark.skipif(True, reason="there is no oven; `make oven` makes it")
@pytest.mark.parametrize("number", range(3))
def test_bread(number):
    pass

def test_wine():
    pytest.skip("the cellar is locked")

def test_water():
    pass
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["one-process", "workers"])
def test_what_did_not_run_is_said_with_its_reason(tmp_path: Path, options: list[str]) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_kitchen.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    *_, bread, wine, end = filter(None, ran.stdout.splitlines())
    assert bread == "3 tests did not run: there is no oven; `make oven` makes it"
    assert wine == "1 test did not run: the cellar is locked"
    assert "1 passed, 4 skipped" in end


def test_a_run_of_everything_says_nothing(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_kitchen.py").write_text("def test_water():\n    pass\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=."],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0 and "not run" not in ran.stdout
