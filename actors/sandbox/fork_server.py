"""The sandbox's end of a zygote: starting it, asking it to fork, ending it and all below it."""

from __future__ import annotations

import json
import os
import platform
import secrets
import select
import socket
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnfuzz.actors.sandbox import procs
from attnfuzz.actors.sandbox.job import Limits
from attnfuzz.actors.targets.child_registry import CHILDREN

START_S = 600.0  # the first start on a machine builds a header, perhaps in a queue of zygotes
MARKER = "ATTNFUZZ_ZYGOTE"
ZYGOTE = Path(__file__).resolve().with_name("zygote.py")  # run, never imported: it wants torch


DECIDES_NUMBERS = (
    "TRITON_INTERPRET", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)  # fmt: skip
"""Variables that are not inherited: with the last two, which containers set, float32 products of a
GPU are rounded to 10 bits."""


class SandboxError(RuntimeError):
    """No sandbox can be had; the message is one sentence that says why."""


class ZygoteDied(Exception):
    """The zygote is gone or does not answer."""


def headers_folder(scratch: Path) -> Path:
    """Where precompiled headers are kept between runs (`headers`, 3 GiB at most): in the cache
    folder, $XDG_CACHE_HOME or ~/.cache; in `scratch` where that is read-only."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "attnfuzz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return scratch / "headers"
    return folder if os.access(folder, os.W_OK) else scratch / "headers"


class ForkServer:
    """A running zygote. Its `environment` says which python, torch, compiler and machine it has."""

    def __init__(self, toolchain: str, scratch: Path, headers: Path, target: str = "cpu") -> None:
        """Starts it and waits until it serves. Raises SandboxError when it cannot."""
        self.marker = secrets.token_hex(8)
        self._errors = scratch / f"zygote-{self.marker}.txt"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = ours
        self._toolchain = toolchain
        self._warm = False
        self._sessions: set[int] = set()
        try:
            headers.mkdir(parents=True, exist_ok=True)
            with theirs, open(self._errors, "wb") as errors:
                self._process = subprocess.Popen(
                    [toolchain, str(ZYGOTE), str(theirs.fileno()), str(headers), target],
                    pass_fds=(theirs.fileno(),), start_new_session=True, cwd=scratch,
                    stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                    env=self._environ(headers, target),
                )  # fmt: skip
        except OSError as error:
            ours.close()
            raise SandboxError(f"{error.filename or toolchain}: {error.strerror}") from error
        try:
            self.environment = self._handshake()
        except BaseException:
            self.close()
            raise
        self._cpu_before = procs.cpu_seconds(self._process.pid)

    def _environ(self, headers: Path, target: str) -> dict[str, str]:
        """The zygote's environment: this process's, less Ray's, with one thread everywhere."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PYTEST_"))}
        for name in DECIDES_NUMBERS:
            inherited.pop(name, None)
        ours = {
            MARKER: self.marker,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # CUDA's own starts a thread, cards hidden or not
            # torch decides at import where precompiled headers go: below the temporary folder
            "TMPDIR": str(headers),
            "TORCHINDUCTOR_CACHE_DIR": str(headers / "warm"),
        }
        return inherited | ours | CHILDREN[target].environment()

    def _handshake(self) -> dict[str, str]:
        try:
            reply = self._prepared("import torch")
        except ZygoteDied:
            raise SandboxError(
                f"{self._toolchain}: cannot import torch: {self._last_words()}"
            ) from None
        return reply["ready"] | {"cpu": cpu_model(), "os": platform.platform()}

    def _prepared(self, step: str) -> dict[str, Any]:
        """The zygote's answer once it has done `step`. Raises SandboxError when it cannot, and
        ZygoteDied."""
        reply = self.receive(START_S)
        if reply is None:
            raise SandboxError(f"{self._toolchain}: to {step} took more than {START_S:.0f} s")
        if "broken" in reply:
            reason = " ".join(str(reply["broken"]).split())
            raise SandboxError(f"{self._toolchain}: cannot {step}: {reason[:600]}")
        return reply

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1][:600] if lines else "the interpreter ended without a word"

    def receive(self, within: float) -> dict[str, Any] | None:
        """The zygote's next message, or None after `within` seconds. Raises ZygoteDied."""
        if not select.select([self.link], [], [], max(within, 0.0))[0]:
            return None
        try:
            data = self.link.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise ZygoteDied
        return json.loads(data)

    def warm_up(self) -> None:
        """Has the zygote compile once, if it has not, so that later children need not start cold.
        Raises SandboxError where it cannot, after which it is of no use, and ZygoteDied."""
        if self._warm:
            return
        before = self.cpu_s()
        try:
            self.link.send(b'{"op": "warm up"}')
        except ConnectionError:
            raise ZygoteDied from None
        self._prepared("compile")
        self._cpu_before += self.cpu_s() - before
        self._warm = True

    def fork(self, request: dict[str, Any], limits: Limits, pipe: int) -> int:
        """Forks a child that runs `request` and writes to `pipe`; returns its pid."""
        message = {"op": "fork", "limits": asdict(limits), "marker": self.marker} | request
        try:
            socket.send_fds(self.link, [json.dumps(message).encode()], [pipe])
        except ConnectionError:
            raise ZygoteDied from None
        reply = self.receive(10.0)
        if reply is None:
            raise ZygoteDied
        pid = int(reply["forked"])
        self._sessions.add(pid)
        return pid

    def below(self) -> list[int]:
        """Everything that runs below the zygote."""
        return procs.descendants(self._process.pid)

    def kill_below(self) -> None:
        """Ends everything that runs below the zygote, which then reports its child's end."""
        procs.kill_all(self.below)

    def sweep(self) -> float:
        """Ends what the last child left behind; CPU seconds it had used. Raises ZygoteDied."""
        self.kill_below()
        try:
            self.link.send(b'{"op": "collect"}')
        except ConnectionError:
            raise ZygoteDied from None
        reply = self.receive(8.0)
        if reply is None or not reply["collected"]:
            raise ZygoteDied
        return float(reply["cpu_s"])

    def forget(self, pid: int) -> None:
        """Notes that the session of child `pid` has ended."""
        self._sessions.discard(pid)

    def cpu_s(self) -> float:
        """CPU seconds the zygote itself has used since it began to serve."""
        return max(0.0, procs.cpu_seconds(self._process.pid) - self._cpu_before)

    def close(self) -> None:
        """Ends the zygote and everything that it or its children started."""
        self.link.close()
        deadline = time.monotonic() + 2.0
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        procs.kill_all(self._all)
        self._process.wait()
        self._collect_adopted()
        self._errors.unlink(missing_ok=True)

    def _all(self) -> list[int]:
        pid = self._process.pid
        found = procs.marked(MARKER, self.marker) + procs.in_sessions({pid} | self._sessions)
        return sorted(set(found + self.below()))

    def _collect_adopted(self) -> None:
        """Where this process is a subreaper, the dead of a dead zygote are its own to wait for."""
        for process in procs.table().values():
            if process.ppid == os.getpid() and process.sid in self._sessions:
                os.waitpid(process.pid, os.WNOHANG)


def cpu_model() -> str:
    """The processor's name."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
