"""The way into the child: `preload_torch` once in the zygote, `execute` in each forked child.

For debugging, `python actors/child/main.py job.json` prints the messages of one job.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import resource
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = (
    "torch",
    "torch._dynamo",
    "torch._dynamo.callback",
    "torch._dynamo.backends.debugging",
    "torch._functorch.aot_autograd",
    "torch._higher_order_ops.flex_attention",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu",
    "torch._inductor.compile_fx",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.kernel.flex",
    "torch.distributed._local_tensor",
    "torch.distributed.tensor",
    "torch.func",
    "torch.nn.attention",
    "torch.nn.attention.flex_attention",
    "torch.utils.checkpoint",
)


def preload_torch() -> None:
    """Imports all that a first compile would, and sets what every program runs under: one thread,
    compiles in this process, nothing taken from a cache. Starts no thread, touches no accelerator.
    """
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            if name == "torch":
                raise
    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    torch._inductor.config.fx_graph_cache = False
    torch._inductor.config.fx_graph_remote_cache = False
    torch._functorch.config.enable_autograd_cache = False
    if tqdm := sys.modules.get("tqdm"):  # Inductor's progress bar, where it is installed
        tqdm.tqdm.monitor_interval = 0  # no thread to watch over it
    importlib.import_module(f"{__package__}.execute")


def execute(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Runs and judges one program; emits `{"phase": name}` as it goes, last `{"outcome": …}`, or of
    several ranks what `gang.run_ranks` does, and `{"all ranks ended": True}`.

    Raises only what is a defect of ours: all that a program raises becomes part of its outcome.
    """
    ranks = job.get("ranks", 1)
    if ranks == 1:
        emit({"outcome": _outcome(job, emit)})
        return
    from attnfuzz.actors.child import gang

    gang.run_ranks(ranks, job.get("part"), emit, lambda heard: _outcome(job, heard))
    emit({"all ranks ended": True})


def _outcome(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    from attnfuzz.actors.child.outcomes import Failed, NotRun, Rejected
    from attnfuzz.actors.child.phases import Phases
    from attnfuzz.actors.targets.child_registry import CHILDREN

    atexit._clear()  # what is there is the zygote's
    began = time.perf_counter()
    phases = Phases(emit)
    execution = CHILDREN[job.get("target", "cpu")].execution(job, phases)
    outcome: dict[str, Any] = {"status": "passed", "failure": None, "rejection": None}
    try:
        execution.go()
        phases.enter("exit")
        _leave()
    except Failed as failed:
        outcome |= {"status": "failed", "failure": failed.failure}
    except Rejected as rejected:
        outcome |= {"status": "rejected", "rejection": rejected.why}
    except NotRun as broken:
        outcome |= {"status": "not_run", "rejection": broken.why}
    phases.stop()
    outcome["features"] = execution.features
    outcome["kernels"] = execution.kernels
    outcome["skipped"] = execution.skipped
    if execution.digests:
        outcome["digests"] = execution.digests
    outcome["cost"] = _cost(time.perf_counter() - began, phases.seconds)
    return outcome


def _leave() -> None:
    """What an interpreter does at its end, where a program may still hang: it waits for threads
    and calls what is registered. What that raises is not a failure, as its exit code is not."""
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()


def _cost(wall_s: float, phases: dict[str, float]) -> dict[str, Any]:
    """Of this process and the compilers that it ran."""
    mine = resource.getrusage(resource.RUSAGE_SELF)
    theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": wall_s,
        "cpu_s": mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime,
        "peak_rss_mb": mine.ru_maxrss / 1024,
        "phases": phases,
    }


def _print_job(path: str) -> None:
    preload_torch()
    execute(
        json.loads(Path(path).read_text()), lambda message: print(json.dumps(message, indent=1))
    )


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    package = sys.modules["attnfuzz"] = types.ModuleType("attnfuzz")  # as the zygote has it
    package.__path__ = [str(here.parents[1])]
    from attnfuzz.actors.child import main as package_main

    package_main._print_job(sys.argv[1])
