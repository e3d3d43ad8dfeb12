"""Commands of attnfuzz, forked from a process that has imported what they import.

Importing it takes two seconds, which hundreds of commands in the tests need not each spend. Nothing
else is shared: each command is a process with a folder, an environment and streams of its own.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import TracebackType

from attnfuzz.actors.sandbox.confine import PR_SET_PDEATHSIG, prctl

PACKAGES = ("attnfuzz.generators", "attnfuzz.corpus", "attnfuzz.fuzz")
REQUEST_BYTES = 1 << 20
KIND = socket.AF_UNIX, socket.SOCK_SEQPACKET
"""A request arrives whole, or sending it fails."""


class CommandServer:
    """Starts the process; `run` is like `subprocess.run` with `capture_output` and `text`."""

    def __init__(self, root: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="af-", dir="/tmp")
        self._address = f"{self._folder.name}/commands"
        with socket.socket(*KIND) as listening:
            listening.bind(self._address)
            listening.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno())],
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "120"},
                pass_fds=[listening.fileno()],
            )

    def __enter__(self) -> CommandServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def run(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Raises `subprocess.TimeoutExpired` where it has to kill the command after `timeout` s."""
        request = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
        with socket.socket(*KIND) as link:
            link.settimeout(timeout)
            link.connect(self._address)
            out, err = _Stream(), _Stream()
            ends = [out.write_end, err.write_end]
            socket.send_fds(link, [json.dumps(request).encode()], ends)
            for end in ends:
                os.close(end)
            answers = link.makefile("r")
            pid = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            return subprocess.CompletedProcess(list(arguments), code, out.text(), err.text())


class _Stream:
    """A pipe that is read to its end while the command runs."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(read_end,), daemon=True)
        self._reader.start()

    def _read(self, read_end: int) -> None:
        with open(read_end, "rb") as stream:
            self._parts.append(stream.read())

    def text(self) -> str:
        self._reader.join()
        return b"".join(self._parts).decode().replace("\r\n", "\n")


def serve(listening: socket.socket) -> None:
    """Forks a process per connection, which forks the command and tells how it ended."""
    while True:
        link, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(link)
            os._exit(0)
        link.close()


def _attend(link: socket.socket) -> None:
    message, ends, _, _ = socket.recv_fds(link, REQUEST_BYTES, 2)
    command = os.fork()
    if command == 0:
        link.close()
        _become(json.loads(message), *ends)
    for end in ends:
        os.close(end)
    link.sendall(f"{command}\n".encode())
    _, status = os.waitpid(command, 0)
    link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(request: dict[str, object], out: int, err: int) -> None:
    """Never returns: the interpreter ends as that of `python -m attnfuzz` would."""
    arguments, cwd, environment = request["arguments"], request["cwd"], request["environment"]
    assert isinstance(arguments, list) and isinstance(cwd, str) and isinstance(environment, dict)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = cwd
    sys.argv = [str(Path(cwd) / "attnfuzz"), *arguments]
    sys.exit(importlib.import_module("attnfuzz.fuzz.cli.app").main())


class WithoutRay(MetaPathFinder):
    """Refuses Ray: as it is imported it reads the environment, which is each command's own."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "ray":
            raise ImportError(fullname, name=fullname)


def import_all() -> None:
    """Imports every module of the commands that does without Ray. Raises `RuntimeError` where one
    of them started a thread, as then a fork is not safe, or imported torch."""
    finder = WithoutRay()
    sys.meta_path.insert(0, finder)
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                if error.name != "ray":
                    raise
    sys.meta_path.remove(finder)
    if "torch" in sys.modules or threading.active_count() > 1:
        raise RuntimeError("the modules of the commands import torch or start a thread")


if __name__ == "__main__":
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    import_all()
    gc.freeze()  # a command need not look for garbage in what it shares
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what attends
    serve(socket.socket(fileno=int(sys.argv[1])))
