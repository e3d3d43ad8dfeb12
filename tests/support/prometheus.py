"""A real Prometheus that scrapes one address, and what it answers to a query."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from attnfuzz.actors.sandbox import confine
from benchmarks.free_port import free_port

PROGRAM = shutil.which("prometheus", path=str(Path(sys.executable).parent)) or shutil.which(
    "prometheus"
)
"""`make test` puts Debian's into .venv/bin, where it can."""


class Prometheus:
    """See the module's docstring."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, expression: str, within: float) -> list[dict[str, Any]]:
        """The series that `expression` gives, waited for so many seconds: none if there are none
        then. Raises HTTPError for one that is no query."""
        end = time.monotonic() + within
        query = urllib.parse.urlencode({"query": expression})
        while True:
            address = f"http://127.0.0.1:{self._port}/api/v1/query?{query}"
            with urllib.request.urlopen(address, timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            if found or time.monotonic() > end:
                return found
            time.sleep(1)


@contextmanager
def prometheus(folder: Path, scraped: int) -> Iterator[Prometheus | None]:
    """Scrapes that port of this machine every second while the block runs; None where Prometheus
    is not installed."""
    if PROGRAM is None:
        yield None
        return
    port = free_port()
    config = folder / "prometheus.yml"
    jobs = [{"job_name": "ray", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}]
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    process = subprocess.Popen(
        [PROGRAM, f"--config.file={config}", f"--storage.tsdb.path={folder / 'series'}",
         f"--web.listen-address=127.0.0.1:{port}"],
        preexec_fn=lambda: confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield Prometheus(port)
    finally:
        process.kill()
        process.wait()
