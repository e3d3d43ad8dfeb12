"""A process in which commands run on hostile data: nothing is started, everything is watched."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.metadata
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer.main

from attnfuzz.actors.shard import ShardReport, Tally
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.fuzz.pool.tasks import (
    Answer,
    Finished,
    Handle,
    ReproRun,
    RunTask,
    SetupTask,
    ShardTask,
    Task,
)
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.render.module import source
from benchmarks.hostile_base import VERSIONS
from benchmarks.hostile_mutations import CANARY

ROOT = Path(__file__).resolve().parents[1]
FOREIGN = ("__import__", "pathlib", CANARY, "os.system", "touch")
"""What no name in a rendered program may be."""


@dataclass
class Watch:
    """What is seen while `on`: `seen` are the things that must not happen; written to may be what
    lies below `writable`. `rendered` counts the programs that would have been run."""

    on: bool = False
    seen: list[str] = field(default_factory=list)
    writable: tuple[str, ...] = ()
    rendered: int = 0

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        told = _STARTS.get(event) or (event if event.startswith(_FAMILIES) else None)
        if told is not None:
            self.note(f"{event} {arguments!r:.200}")
        elif event == "exec":
            self._executed(arguments[0])
        elif event == "import":
            self._imported(str(arguments[0]))
        elif event == "open":
            self._opened(arguments)
        elif event in _CHANGES:
            *_, last = arguments
            folder = os.readlink(f"/proc/self/fd/{last}") if _is_handle(last) else ""
            for path in arguments[:2]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._written(os.path.join(folder, os.fsdecode(path)), event)

    def note(self, text: str) -> None:
        self.on = False  # what noting does is no event
        self.seen.append(text)
        self.on = True

    def _executed(self, code: Any) -> None:
        if isinstance(code, types.CodeType) and CANARY in str(list(_texts(code))):
            self.note(f"exec of {code.co_filename}")

    def _imported(self, module: str) -> None:
        if module.partition(".")[0] not in _known_modules():
            self.note(f"import of {module!r}")

    def _opened(self, arguments: tuple[Any, ...]) -> None:
        path, mode, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if isinstance(path, str | bytes) and writes:
            self._written(os.fsdecode(path), f"open {mode}")

    def _written(self, path: str, how: str) -> None:
        if how == "sqlite3.connect" and path.endswith(("?mode=ro", "?immutable=1")):
            return  # to read
        whole = os.path.realpath(os.path.dirname(os.path.abspath(path)))
        whole = os.path.join(whole, os.path.basename(path))
        if not whole.startswith(self.writable) and whole != "/dev/null":
            self.note(f"{how} of {whole!r:.300}")


_STARTS = dict.fromkeys(
    ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.spawn", "pty.spawn",
     "subprocess.Popen", "os.startfile", "code.__new__", "sqlite3.load_extension",
     "socket.connect", "socket.bind", "socket.getaddrinfo", "webbrowser.open", "pickle.find_class",
     "marshal.loads", "builtins.input"),
    "starts",
)  # fmt: skip
del _STARTS["marshal.loads"]  # modules that are imported late come that way
_FAMILIES = ("ctypes.", "ftplib.", "smtplib.", "urllib.", "telnetlib.", "nntplib.")
_CHANGES = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate",
    "os.chmod", "os.chown", "shutil.rmtree", "shutil.move", "shutil.copyfile", "sqlite3.connect",
)  # fmt: skip


def _is_handle(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 1024 and os.path.exists(f"/proc/self/fd/{value}")


def _texts(code: types.CodeType) -> Iterator[object]:
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _texts(constant)
        else:
            yield constant


_MODULES: set[str] = set()


def _known_modules() -> set[str]:
    if not _MODULES:
        installed = importlib.metadata.packages_distributions()
        _MODULES.update(sys.stdlib_module_names, installed, sys.modules, {"attnfuzz", "benchmarks"})
    return _MODULES


class StubPool:
    """Where programs would run: renders each, and looks whether what was text has become code."""

    size = 1

    def __init__(self, watch: Watch, target: str) -> None:
        self._watch = watch
        self._target = target
        self._waiting: list[tuple[Handle, Task]] = []
        self._handles = 0

    spread = 0

    @property
    def free(self) -> int:
        return 1 - len(self._waiting)

    def takes(self, target: str | None, hardware: str | None = None) -> bool:
        return self.free > 0

    def serves(self, target: str, hardware: str | None = None) -> bool:
        return True

    def states(self) -> dict[str, int]:
        return {"idle": self.free, "busy": self.size - self.free}

    def environment(self, target: str | None = None, hardware: str | None = None) -> dict[str, str]:
        return {**VERSIONS, "target": self._target}

    def submit(self, task: Task, hardware: str | None = None) -> Handle:
        self._handles += 1
        self._waiting.append((self._handles, task))
        return self._handles

    def wait(self, timeout: float) -> list[Finished]:
        done, self._waiting = self._waiting, []
        return [Finished(handle, task, self._answer(task)) for handle, task in done]

    def close(self) -> None:
        self._waiting.clear()

    def _answer(self, task: Task) -> Answer:
        if isinstance(task, ShardTask):
            report: ShardReport = Tally(task.shard).report(0.1, 0.0)
            return report
        if isinstance(task, RunTask):
            device = TARGETS[task.settings.target or self._target].device
            for program in task.programs:
                self.inspect(source(program, device))
            return [Outcome(status="passed") for _ in task.programs]
        if isinstance(task, SetupTask):
            return [Outcome(status="passed")]
        self.inspect(task.text)
        return [ReproRun(0, "") for _ in range(task.runs)]

    def inspect(self, text: str) -> None:
        """Raises SyntaxError where `text` is no Python; notes foreign code in it."""
        self._watch.rendered += 1
        for node in ast.walk(ast.parse(text)):
            names = [
                each
                for name in ("id", "attr", "arg", "name", "module", "asname")
                if isinstance(each := getattr(node, name, None), str)
            ]
            if any(name.startswith(FOREIGN) for name in names):
                self._watch.note(f"rendered as code: {ast.unparse(node)[:200]}")


class _Folder:
    """In place of a scratch folder, whose reaper is a process."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hostile-scratch-"))

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *told: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Status:
    name: str
    can_run: bool = True
    reason: str = ""


def install(watch: Watch) -> None:
    """Puts the hook into this process, for good."""
    _known_modules()
    sys.addaudithook(watch.hook)


def stub(watch: Watch) -> None:
    """Puts stubs where processes would be started, and makes the command line once."""
    import attnfuzz.fuzz.campaign.launch
    import attnfuzz.fuzz.pool.opened
    from attnfuzz.actors.sandbox import scratch
    from attnfuzz.actors.targets import availability as targets
    from attnfuzz.fuzz.dashboard import plots

    plots.bars({"": 1.0}, "", "")  # what is imported late, and written once

    @contextlib.contextmanager
    def pool_in(
        folder: Path, python: str, preload: Sequence[Path], workers: int = 1, target: str = "cpu"
    ) -> Iterator[StubPool]:
        yield StubPool(watch, target)

    def all_targets(python: str) -> list[_Status]:
        return [_Status(name) for name in TARGETS]

    def ray_pool(config: Any, workers: Any, **_: Any) -> StubPool:
        return StubPool(watch, config.targets[0])

    vars(attnfuzz.fuzz.pool.opened)["pool_in"] = pool_in
    for module in (targets, attnfuzz.fuzz.campaign.launch):
        vars(module)["targets"] = all_targets
    scratch.Scratch.create = classmethod(lambda cls, base="/tmp": _Folder())  # type: ignore
    sys.modules["attnfuzz.fuzz.pool.ray_pool"] = types.SimpleNamespace(RayPool=ray_pool)  # type: ignore
    vars(typer.main)["get_command"] = functools.cache(typer.main.get_command)
