"""The fork server: a process that has imported torch and forks a child per program.

Run as a script by the toolchain's interpreter, `python zygote.py SOCKET_FD HEADERS_DIR TARGET`;
needs the standard library and torch alone. It has one thread and touches no accelerator. Over the
socket (SOCK_SEQPACKET, JSON; the other end is `actors.sandbox.fork_server`) it gets

    {"op": "fork", "directory", "token", "limits", "marker"} + the write end of the child's pipe
    {"op": "warm up"}                 compile once, so that children need not start cold
    {"op": "collect"}                 wait for everything that the last child left behind

and sends {"ready": environment} or {"broken": sentence} once, then for each program {"forked": pid}
and {"ended": wait status, "cpu_s", "peak_rss_mb", "left": whether processes are left behind}, after
warming up {"warm": true} or {"broken": sentence}, and after collecting {"collected": bool,
"cpu_s"}. It ends, with all it started, when the socket closes.

It is a subreaper, so that whatever a program starts, however it detaches, stays below it.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import platform
import select
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def know_own_package() -> None:
    """Makes `attnfuzz.actors` importable without any folder on sys.path: the toolchain's
    interpreter may not have us installed, and must not find our torch instead of its own."""
    if sys.path and Path(sys.path[0] or ".").resolve() == HERE:
        del sys.path[0]
    package = sys.modules["attnfuzz"] = types.ModuleType("attnfuzz")
    package.__path__ = [str(HERE.parents[1])]


if __name__ == "__main__":
    know_own_package()

from attnfuzz.actors.child import main as child  # noqa: E402
from attnfuzz.actors.sandbox import confine, procs  # noqa: E402
from attnfuzz.actors.sandbox.compiled_once import KERNELS, compile_anew, keep_kernels  # noqa: E402
from attnfuzz.actors.sandbox.headers import LIBRARIES  # noqa: E402
from attnfuzz.actors.targets.child_registry import CHILDREN  # noqa: E402
from attnfuzz.actors.targets.cxx import compiler_version  # noqa: E402

JOB = "job.json"
OPTIONAL = (
    "flash_attn", "torch_npu", "transformers", "torchtitan", "yunchang", "diffusers", "attn_gym",
    "torchtune", "ring_flash_attn",
)  # fmt: skip
"""Packages of kernels, reported where they are installed."""


def main() -> None:
    """Prepares and serves until the socket closes, then ends everything that it started."""
    fd, headers, target = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    owner = os.getppid()
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(1)
    confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the driver's to handle
    link = socket.socket(fileno=fd)
    try:
        environment = prepare(headers, target)
    except Exception as error:
        send(link, broken(error))
        raise
    # From here on the end of the socket says that the owner died. The signal would also come when
    # only the thread that started us ends.
    confine.prctl(confine.PR_SET_PDEATHSIG, 0)
    send(link, {"ready": environment})
    try:
        serve(link, lambda: CHILDREN[target].warm_up_compiler(headers))
    finally:
        procs.kill_all(lambda: procs.descendants(os.getpid()))


def prepare(headers: Path, target: str) -> dict[str, str]:
    """Imports torch, without compiling anything; returns the environment's description."""
    chosen = CHILDREN[target]
    chosen.before_torch(headers / LIBRARIES)
    gc.disable()  # what an import makes stays: to look for garbage again and again takes a second
    with chosen.importing():
        child.preload_torch()
    gc.enable()
    torch = sys.modules["torch"]
    torch.set_num_threads(1)
    there = chosen.warm_up(headers)
    settle()
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": version("triton") or "none",
        "cxx": compiler_version(),
        **{name: found for name in OPTIONAL if (found := version(name))},
        **there,
    }


def settle() -> None:
    """Lets children share what is there. Raises RuntimeError where there are threads."""
    gc.collect()
    gc.freeze()
    names = [name for name in procs.thread_names() if not is_idle(name)]
    if len(names) > 1:
        raise RuntimeError(
            f"preloading torch started {len(names) - 1} threads; forking is not safe"
        )


def is_idle(thread: str) -> bool:
    """A thread of CUDA's driver where every card is hidden. To count none, as autograd does, starts
    the driver, which does nothing more."""
    return thread.startswith("cuda") and os.environ.get("CUDA_VISIBLE_DEVICES") == ""


def broken(error: Exception) -> dict[str, Any]:
    """The message that says why no program can run."""
    return {"broken": f"{type(error).__name__}: {error}"[:2000]}


def version(distribution: str) -> str | None:
    """The version of an installed distribution, or None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def serve(link: socket.socket, compile_once: Callable[[], None]) -> None:
    """Answers requests until the other end closes."""
    while True:
        data, fds, _, _ = socket.recv_fds(link, 1 << 16, 1)
        if not data:
            return
        request = json.loads(data)
        if request["op"] == "collect":
            send(link, collect())
        elif request["op"] == "warm up":
            send(link, warm_up(link, compile_once))
        elif not run_one(link, request, fds[0]):
            return


def warm_up(link: socket.socket, compile_once: Callable[[], None]) -> dict[str, Any]:
    """Compiles for all later children; the message that says how that went."""
    try:
        with ending_with(link):
            compile_once()
        settle()
    except Exception as error:
        return broken(error)
    return {"warm": True}


@contextmanager
def ending_with(link: socket.socket) -> Iterator[None]:
    """While nobody waits at `link`: ends this process and all that it started as soon as the other
    end closes. Until then nothing must be sent from there."""

    def look(*_: object) -> None:
        if select.select([link], [], [], 0)[0]:
            procs.kill_all(lambda: procs.descendants(os.getpid()))
            os._exit(1)

    flags = fcntl.fcntl(link, fcntl.F_GETFL)
    before = signal.signal(signal.SIGIO, look)
    try:
        fcntl.fcntl(link, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(link, fcntl.F_SETFL, flags | os.O_ASYNC)
        look()  # it may have closed before
        yield
    finally:
        fcntl.fcntl(link, fcntl.F_SETFL, flags)
        signal.signal(signal.SIGIO, before)


def run_one(link: socket.socket, request: dict[str, Any], pipe: int) -> bool:
    """Forks the child and waits for its end; False when the owner went away meanwhile."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        run_child(request, pipe, parent)
    os.close(pipe)
    send(link, {"forked": pid})
    ended = os.pidfd_open(pid)
    try:
        readable, _, _ = select.select([ended, link.fileno()], [], [])
    finally:
        os.close(ended)
    if ended not in readable:
        return False  # while a child runs nothing is sent: the socket has closed
    _, status, usage = os.wait4(pid, 0)
    others = collect(0.0)
    send(link, {
        "ended": status,
        "cpu_s": usage.ru_utime + usage.ru_stime + others["cpu_s"],
        "peak_rss_mb": usage.ru_maxrss / 1024,
        "left": not others["collected"],
    })  # fmt: skip
    return True


def collect(within: float = 5.0) -> dict[str, Any]:
    """Waits for all children, orphans that became ours included; says whether none is left."""
    cpu_s, end = 0.0, time.monotonic() + within
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return {"collected": True, "cpu_s": cpu_s}
        if pid:
            cpu_s += usage.ru_utime + usage.ru_stime
        elif time.monotonic() >= end:
            return {"collected": False, "cpu_s": cpu_s}
        else:
            time.sleep(0.002)


def run_child(request: dict[str, Any], pipe: int, parent: int) -> None:
    """In the child: confines itself, runs the program, says what became of it, and ends."""
    emit = emitter(pipe, request["token"])
    kernels = Path.cwd() / KERNELS
    try:
        directory = Path(request["directory"])
        confine.show_native_frames()
        given = request["limits"], request["marker"], pipe, parent, request["cpus"]
        confine.enter(directory, *given)
        job = json.loads((directory / JOB).read_text())
        if job.get("compiles_anew"):
            compile_anew()
        else:
            keep_kernels(kernels)
        child.execute(job, emit)
    except BaseException:  # a defect of ours: the child judges whatever a program raises itself
        emit({"defect": traceback.format_exc()[-20_000:]})
    finally:
        confine.leave()


def emitter(pipe: int, token: str) -> Callable[[dict[str, Any]], None]:
    """Writes messages to `pipe`, one a line, each behind `token`, so that nothing else counts."""
    mine = os.getpid()

    def emit(message: dict[str, Any]) -> None:
        if os.getpid() != mine:  # a fork of the program's that came back into our code
            os._exit(1)
        data = f"\n{token}{json.dumps(message)}\n".encode()
        while data:
            data = data[os.write(pipe, data) :]

    return emit


def send(link: socket.socket, message: dict[str, Any]) -> None:
    """Sends `message` as JSON in one packet."""
    link.send(json.dumps(message).encode())


if __name__ == "__main__":
    main()
