"""Stacks: of a process that hangs, and of one that has crashed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from attnfuzz.actors.sandbox import confine, procs
from attnfuzz.actors.sandbox import ranks as gang
from attnfuzz.actors.sandbox.parts import Shown
from attnfuzz.generators.model.outcome import DEEPER, Frame

EVIDENCE_BYTES = 20_000
OURS = str(Path(__file__).resolve().parents[1])
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^ ?SIG[A-Z]+\(\d+\), PID: \d+, Thread \d+: *$", re.MULTILINE)
_SIGNALLED = "c10::FatalSignalHandler::fatalSignalHandler("
_NATIVE = re.compile(r"frame #\d+: (?P<function>.+?) \+ 0x[0-9a-f]+ \(.* in (?P<library>[^()]+)\)")


def tail(path: Path, size: int = EVIDENCE_BYTES) -> str:
    """The last `size` bytes of a file as text; empty when there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


def size_of(path: Path) -> int:
    """Its bytes; 0 when there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def head(text: str, size: int = EVIDENCE_BYTES) -> str:
    """`text` cut so that its UTF-8 form has at most `size` bytes."""
    return text.encode(errors="replace")[:size].decode(errors="ignore")


def of_hang(
    pid: int, session: list[int], directory: Path, *, native: bool = True
) -> dict[str, str]:
    """Evidence about a child that missed its deadline, which it collects before anything is killed:
    see `show`, and of several ranks also `ranks` (where each is, and which went another way)."""
    return told(show(pid, session, directory, native=native), {})


def told(here: Shown, elsewhere: Mapping[str, Shown]) -> dict[str, str]:
    """The evidence about one node, and about the others of the same program by their names."""
    texts = gang.evidence_of(here, elsewhere)
    return {name: head(text) for name, text in texts.items() if text}


def show(pid: int, session: list[int], directory: Path, *, native: bool) -> Shown:
    """The same of the ranks of one node.

    `pid` is the child, `session` all processes of its, `directory` its own. Of several ranks the
    first that still runs stands for the child. Keys: `stacks` (all
    threads, native frames too, where py-spy can attach), `python_stacks` (faulthandler's, written
    by the process itself, unless it is stopped), `processes` (state and kernel wait channel of
    each), `kernel` (where the kernel has the child); of several ranks also `stacks of rank N`.
    Without `native` there are none of those that py-spy takes, which cost some CPU seconds a
    process.
    """
    pid, name = gang.speaker(directory) or (pid, confine.FAULTS)
    faults = directory / name
    procs.send(pid, confine.STACKS_SIGNAL)
    evidence = {
        "stacks": py_spy(pid) if native else "",
        "processes": "\n".join(describe(member) for member in session),
        "kernel": kernel_view(pid),
    }
    for _ in range(20):
        if tail(faults):
            break
        time.sleep(0.02)
    evidence["python_stacks"] = tail(faults)
    return gang.show(directory, evidence, py_spy if native else None)


def py_spy(pid: int, within: float = 20.0) -> str:
    """What py-spy says of all threads of `pid`; why not, when it cannot."""
    beside = Path(sys.executable).with_name("py-spy")
    tool = str(beside) if beside.exists() else shutil.which("py-spy")
    if tool is None:
        return "py-spy is not installed"
    text = ""
    for native in (["--native"], []):
        try:
            ran = subprocess.run(
                [tool, "dump", "--pid", str(pid), *native],
                capture_output=True, text=True, errors="replace", timeout=within, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            text = f"py-spy gave no answer within {within:.0f} s"
            continue
        except OSError as error:  # no process may be started, say
            return f"py-spy: {error.strerror}"
        if ran.returncode == 0:
            return ran.stdout
        text = ran.stderr
    return text


def describe(pid: int) -> str:
    """One line about a process."""
    process = procs.read(pid)
    if process is None:
        return f"{pid} ended"
    return f"{pid} {process.name}: state {process.state}, in {_read(pid, 'wchan') or '?'}"


def kernel_view(pid: int) -> str:
    """The child's kernel stack (readable by root only) and its status."""
    return "\n".join(text for name in ("stack", "status") if (text := _read(pid, name).strip()))


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def python_frames(text: str, source: Path) -> tuple[Frame, ...]:
    """Frames, outermost first, of the current (or only) thread of a faulthandler dump.

    Frames in `source` become "<program>"; those of the harness itself are left out. Of a deep stack
    a dump has the innermost frames only: a first one named `outcome.DEEPER` says so.
    """
    _, _, current = text.rpartition("Current thread ")
    frames = []
    for line in current.splitlines()[1:]:
        match = _FRAME.match(line)
        if match is None:
            if line.strip() == "...":
                frames.append(Frame(file=DEEPER, function=DEEPER, line=0))
            break
        if not match["file"].startswith(OURS):
            file = relative(match["file"], source)
            frames.append(Frame(file=file, function=match["function"], line=int(match["line"])))
    return tuple(reversed(frames))


def native_frames(stack: str) -> tuple[Frame, ...]:
    """Frames, outermost first, of a `native_stack`: those between the signal's delivery and
    Python's own, as far as they have names."""
    frames: list[Frame] = []
    for line in stack.splitlines():
        if "omitting python frames" in line:
            break
        if (match := _NATIVE.search(line)) and match["function"] != "<unknown function>":
            function = match["function"]
            if not function.startswith(("c10::FatalSignalHandler", "gsignal", "abort")):
                frames.append(Frame(file=os.path.basename(match["library"]), function=function))
    return tuple(reversed(frames))


def native_stack(text: str) -> str:
    """The stack of the thread that has had a fatal signal, of those that torch has written: it asks
    the others for theirs. Empty where torch has not come so far."""
    asked = _THREAD.split(text)
    return next((stack for stack in asked if _SIGNALLED in stack), "")


def relative(file: str, source: Path) -> str:
    """A path as a frame gives it: within site-packages or the standard library."""
    if file == str(source):
        return "<program>"
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            return file.rpartition(mark)[2]
    library = re.search(r"/lib/python3\.\d+/(.+)$", file)
    return library[1] if library else os.path.basename(file)
