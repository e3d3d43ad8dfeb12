"""Scripts: `repro.py` is run in clean processes, without anything of ours."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from attnfuzz.actors.runs import ReproRun, ReproTask
from attnfuzz.actors.sandbox import disk, ports, procs
from attnfuzz.actors.sandbox.activity import Activity
from attnfuzz.actors.sandbox.cpus import confine_to, enough
from attnfuzz.actors.sandbox.verdict import DISK_FULL
from attnfuzz.actors.sandbox.watchdog import BLINK_S, GLANCE_S

KEPT = 4 << 20
"""Bytes kept of what a script writes to stderr. Inductor prints all arguments of what it could not
lower behind the exception's name: tens of kB."""

WRITTEN = 1 << 30
"""Bytes that a script may write to one file."""

LEFT_OUT = ("PYTHON", "RAY_", "TORCH", "NVIDIA_TF32_OVERRIDE")
"""What the variables begin with that a script must not see."""

BOOTSTRAP = """\
import importlib.util, runpy, sys
from pathlib import Path
*preload, script = sys.argv[1:]
for path in preload:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
"""
"""Loads preload files as the sandbox does, then runs the script; unused without preload files."""


def run_repro(task: ReproTask) -> list[ReproRun]:
    """Run a script `task.runs` times, each in a process of its own that sees nothing of ours. One
    that hangs is not run again: each time would take minutes.

    The interpreter is isolated (`-I`: no PYTHON* variables, no current folder on its path).
    Inductor's caches of compiled graphs are off, so that every run compiles; its folder, with the
    precompiled headers, is shared by the runs.
    """
    folder = Path(tempfile.mkdtemp(prefix="repro-", dir=task.folder))
    try:
        script = folder / "repro.py"
        script.write_text(task.text, encoding="utf-8")
        runs: list[ReproRun] = []
        while len(runs) < task.runs and (not runs or runs[-1].status is not None):
            runs.append(_run_once(task, script, folder))
        return runs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_once(task: ReproTask, script: Path, folder: Path) -> ReproRun:
    arguments = [str(script)]
    if task.preload:
        arguments = ["-c", BOOTSTRAP, *task.preload, str(script)]
    group: int | None = None
    before = _children_cpu_s()
    environments = _ranks(task.processes, _environment(folder))
    with (folder / "stderr").open("w+b") as stderr, environments as ranks:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for environment in ranks:
                processes.append(
                    subprocess.Popen(
                        [task.python, "-I", *arguments],
                        cwd=folder,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=stderr,
                        process_group=group or 0,
                    )
                )
                _limit(processes[-1].pid, task.processes)
                confine_to(enough(task.cpus, task.processes), processes[-1].pid)
                group = group or processes[0].pid
            status, said = _status(processes, task, folder)
        finally:
            with contextlib.suppress(ProcessLookupError):
                if group is not None:
                    os.killpg(group, signal.SIGKILL)
            for process in processes:
                process.wait()
            _reap(group)
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - KEPT))
        written = stderr.read().decode("utf-8", "replace")
    return ReproRun(status, written + said, round(_children_cpu_s() - before, 3))


def _reap(group: int | None) -> None:
    """Waits for what a dead script has left to this process, where that is a subreaper."""
    with contextlib.suppress(ChildProcessError):
        while group is not None and os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _children_cpu_s() -> float:
    """CPU seconds of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _status(
    processes: Sequence[subprocess.Popen[bytes]], task: ReproTask, folder: Path
) -> tuple[int | None, str]:
    """What the processes ended with: a signal, a failure, or 0; None when they hang. Where they
    have filled `folder` they are to be killed for it, and the text says so."""
    began = time.monotonic()
    own = enough(task.cpus, task.processes)
    activity = Activity(began, len(own)) if own else Activity(began)
    running = list(processes)
    while running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            end = began + activity.allows(task.timeout_s)
            running[0].wait(min(max(BLINK_S, end - time.monotonic()), GLANCE_S))
        running = [process for process in running if process.poll() is None]
        tops = [process.pid for process in running]
        below = [pid for top in tops for pid in procs.descendants(top)]
        now = time.monotonic()
        activity.look((*tops, *below), now)
        if running and now >= began + activity.allows(task.timeout_s):
            return None, ""
        if running and task.idle_s is not None and activity.asleep >= task.idle_s:
            return None, ""
        if running and (found := disk.used(folder, (*tops, *below))).bytes > task.disk_mb << 20:
            said = f"{DISK_FULL}: wrote more than {task.disk_mb} MiB to its folder\n{found}\n"
            return -signal.SIGKILL, said
    codes = [process.returncode for process in processes]
    # A rank that a signal ended leaves the others with a lost connection.
    killed = [one for one in codes if one < 0]
    return next((one for one in (*killed, *codes) if one), 0), ""


def _limit(pid: int, processes: int) -> None:
    """Half of the machine's memory for all processes of a script, and what each may write: it
    allocates or prints without end by itself, and must not take the others down with it."""
    memory = psutil.virtual_memory().total // 2 // processes
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory, memory))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (WRITTEN, WRITTEN))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def _ranks(count: int, environment: dict[str, str]) -> Iterator[list[dict[str, str]]]:
    """The environment of each process, as `torchrun` would set it where there are several; the port
    is theirs until the block ends."""
    if count == 1:
        yield [environment]
        return
    with ports.reserved() as port:
        yield [
            environment | {
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count),
                "RANK": str(rank), "LOCAL_RANK": str(rank),
            }
            for rank in range(count)
        ]  # fmt: skip


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(LEFT_OUT)}
    return kept | {
        "TMPDIR": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "repro-cache"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }
