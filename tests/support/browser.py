"""A real Chromium, Debian's or another that is on the PATH, and the dashboard as a process."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "no Chromium on the PATH, and `make test` may not install it here (apt-get install chromium)"
)


def chromium() -> str | None:
    """Where it is."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """The browser, without a window."""
    from playwright.sync_api import sync_playwright

    alone = [] if os.geteuid() else ["--no-sandbox"]  # it has none for root
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=alone)
        yield opened
        opened.close()


@contextlib.contextmanager
def dashboard(*directories: Path, decide: bool = False, here: Path = ROOT) -> Iterator[str]:
    """Serves the directories, seen from `here`, on a free port; gives the address, with the key if
    people may `decide`."""
    command = [sys.executable, "-m", "attnfuzz", "dashboard", "--port", "0"]
    command += ["--decide"] if decide else []
    with subprocess.Popen(
        [*command, *map(str, directories)], cwd=here, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        told = process.stdout.readline()
        if decide:
            told = process.stdout.readline()
        address = r"http://127\.0\.0\.1:\d+" + (r"/decide\?key=[\w-]+" if decide else "")
        found = re.search(address, told)
        try:
            assert found is not None, told + process.stdout.read()
            yield found[0]
        finally:
            process.terminate()
            process.wait(20)
    assert process.returncode in (0, -15, 143), process.returncode
