"""A campaign as a Ray job: a real job server, and what Ray exports, read as Prometheus reads it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnfuzz.actors.sandbox import confine, reaper
from benchmarks.local_cluster import SETTINGS
from tests.support.prometheus import PROGRAM, prometheus

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
BOARD = json.loads((ROOT / "deploy" / "grafana.json").read_text())
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != reaper.MARKER} | SETTINGS
ENVIRONMENT["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A head with a job server that asks for a token, by `ray start`: what its ports are.

    A command `attnfuzz` is on its path. Ray keeps a process's mode of tokens, so it is another one.
    """
    pytest.importorskip("aiohttp", reason="ray[default] is not installed")
    pytest.importorskip("prometheus_client")
    from benchmarks.free_port import free_port

    ports = {name: free_port() for name in ("control", "dashboard", "agent", "metrics")}
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "attnfuzz"
    command.write_text(
        f'#!/bin/sh\nshift\nexec {sys.executable} -m benchmarks.simulated_launch "$@"\n'
    )
    command.chmod(0o755)
    files = Path(tempfile.mkdtemp(prefix="rj-", dir="/tmp"))  # short: sockets are put there
    started = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block",
         "--num-cpus=1", "--object-store-memory=100000000", f"--temp-dir={files}",
         f"--port={ports['control']}", "--include-dashboard=true",
         f"--dashboard-port={ports['dashboard']}",
         f"--dashboard-agent-listen-port={ports['agent']}",
         f"--metrics-export-port={ports['metrics']}"],
        env=ENVIRONMENT
        | {"PATH": f"{folder}:{os.environ['PATH']}", "RAY_AUTH_MODE": "token"}
        | {"TMPDIR": str(files)},
        preexec_fn=_dies_with_parent,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        _until_it_answers(ports["metrics"], started)
        yield ports
    finally:
        started.terminate()
        started.communicate(timeout=60)
        shutil.rmtree(files, ignore_errors=True)


def _dies_with_parent() -> None:
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGTERM)


def _until_it_answers(port: int, started: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if started.poll() is not None:
            pytest.fail(f"ray start: {started.communicate()[0]}")
        try:
            exported(port)
        except OSError:
            time.sleep(0.5)
        else:
            return
    pytest.fail("nothing answers for the metrics of Ray")


def exported(port: int) -> dict[str, list[dict[str, str]]]:
    """By name of a metric, the labels of its samples."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


def asked(expression: str) -> dict[str, list[tuple[str, str]]]:
    """The metrics of a query, each with the labels and what they are to match."""
    found = {}
    for name, labels in re.findall(r"(ray_attnfuzz_\w+)(?:\{([^}]*)\})?", expression):
        found[name] = re.findall(r'(\w+)(?:=~|!=|=)"([^"]*)"', labels)
    return found


def test_prometheus_evaluates_the_boards_queries() -> None:
    if PROGRAM is None:
        pytest.skip("there is no prometheus: the board's queries are compared with the names only")
    asked_for = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert asked_for.stdout.startswith("prometheus, version")


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_submitted_campaign_runs_and_is_seen(
    head: dict[str, int], tmp_path: Path, running: ExitStack
) -> None:
    config, directory = tmp_path / "night.yaml", tmp_path / "night"
    data: dict[str, Any] = {
        "minutes": 1.0, "shard_size": 2, "profiles": {"eager": 1}, "workers": {"cpu": "auto"},
        "shipped": False, "variants": False, "minimize": {"max_candidates": 5},
    }  # fmt: skip
    config.write_text(yaml.safe_dump(data))
    address = f"http://127.0.0.1:{head['dashboard']}"
    submitted = subprocess.Popen(
        [sys.executable, "-m", "attnfuzz", "submit", str(config), "--dir", str(directory),
         "--address", address, "--follow"],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    queries = [one["expr"] for panel in BOARD["panels"] for one in panel["targets"]]
    wanted = {name: labels for query in queries for name, labels in asked(query).items()}
    assert len(wanted) == len(BOARD["panels"])
    evaluated = running.enter_context(prometheus(tmp_path, head["metrics"]))
    seen: dict[str, list[dict[str, str]]] = {}
    end = time.monotonic() + 240
    while not wanted.keys() <= seen.keys() and time.monotonic() < end:
        time.sleep(1)
        assert submitted.poll() in (None, 0), submitted.communicate()
        seen |= exported(head["metrics"])
    if not wanted.keys() <= seen.keys():
        submitted.kill()
        pytest.fail(f"{sorted(wanted.keys() - seen.keys())} not seen: {submitted.communicate()}")
    for name, labels in wanted.items():
        for label, values in labels:
            there = {sample.get(label, "") for sample in seen[name]}
            assert any(re.fullmatch(values or ".+", one) for one in there), (name, label, there)

    for query in queries:
        assert evaluated is None or evaluated.ask(query, within=30), f"{query} gives nothing"

    said, errors = submitted.communicate(timeout=300)
    assert submitted.returncode == 0, errors
    assert said.endswith(": succeeded\n") and "ray job logs" in said
    health = subprocess.run(
        [sys.executable, "-m", "attnfuzz", "health", str(directory), "--json"],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert health.returncode == 1 and json.loads(health.stdout)["controller"] is None
    assert json.loads(health.stdout)["silent_s"] < 300
