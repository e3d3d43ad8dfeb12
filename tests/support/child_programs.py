"""Hand-written program sources that follow the contract, and running them through the child."""

from __future__ import annotations

import gc
import json
import os
import select
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfuzz.actors.child import main
from attnfuzz.actors.sandbox.fork_server import headers_folder

TEMPLATE = """
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

{extra}

def inputs({shape_arguments}):
    torch.manual_seed(0)
    {inputs}


def attention(q, k, v):
    {attention}


def reference(q, k, v):
    {reference}


def run(fn, args):
    {run}


{calls}
compiled = torch.compile(attention{compile_arguments})
"""
REFERENCE = "return torch.softmax(q @ k.mT * 16 ** -0.5, dim=-1) @ v"
SDPA = "return F.scaled_dot_product_attention(q, k, v)"
HANDWRITTEN = "return torch.softmax(q @ k.mT * 16 ** -0.5, dim=-1) @ v"
TRAINING = """
out = fn(*args)
grads = torch.autograd.grad(out, args, torch.ones_like(out))
return {"out": out, **dict(zip(["dq", "dk", "dv"], grads))}
"""


def source(
    attention: str = SDPA,
    *,
    reference: str = REFERENCE,
    inputs: str = "return tuple(torch.randn(2, 2, 8, 16) for _ in range(3))",
    run: str = 'return {"out": fn(*args)}',
    extra: str = "",
    compile_arguments: str = ", backend='eager'",
    shape_arguments: str = "",
    calls: str = "",
) -> str:
    """A program of contiguous q, k, v `[2, 2, 8, 16]`; each piece is a function's body."""
    bodies = {"attention": attention, "reference": reference, "inputs": inputs, "run": run}
    return TEMPLATE.format(
        **{name: textwrap.indent(body.strip(), "    ").strip() for name, body in bodies.items()},
        extra=extra,
        compile_arguments=compile_arguments,
        shape_arguments=shape_arguments,
        calls=calls,
    )


@dataclass
class Told:
    """What the child said: its phases in order, why eager was refused, and its outcome."""

    refused: str | None = None
    phases: list[str] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)

    @property
    def failure(self) -> dict[str, Any]:
        assert self.outcome["status"] == "failed", self.outcome
        return self.outcome["failure"]

    @property
    def kind(self) -> str:
        """The failure's kind, or the status where there is none."""
        failure = self.outcome["failure"]
        return failure["kind"] if failure else self.outcome["status"]


def compile_settings(backend: str = "eager", **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"mode": None, "dynamic": None, "fullgraph": False, "options": {}}
    return {"backend": backend, **settings, **changes}


def tell(text: str, job: dict[str, Any] | None = None, deadline_s: float = 240) -> Told:
    """Runs a source in a fork of this process, which has preloaded torch."""
    main.preload_torch()
    with _folder() as folder:
        path = folder / "program.py"
        path.write_text(text)
        return _gather({"source": str(path), **(job or {})}, folder, deadline_s)


def _gather(job: dict[str, Any], folder: Path, deadline_s: float) -> Told:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(job, folder, writing)
    os.close(writing)
    said, end = b"", time.monotonic() + deadline_s
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        said += piece
    else:
        os.kill(pid, 9)
    os.close(reading)
    os.waitpid(pid, 0)
    return _read(said)


def _child(job: dict[str, Any], folder: Path, pipe: int) -> None:
    """In the fork; never returns."""
    gc.freeze()  # what other tests left, Ray's say, is not the child's to take apart
    try:
        os.chdir(folder)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        tempfile.tempdir = str(folder)
        _keep_headers(folder)

        def emit(message: dict[str, Any]) -> None:
            os.write(pipe, json.dumps(message).encode() + b"\n")

        main.execute(job, emit)
    except BaseException as defect:
        os.write(pipe, json.dumps({"defect": repr(defect)}).encode() + b"\n")
    os._exit(0)


def _keep_headers(folder: Path) -> None:
    """Has precompiled headers where sandboxes have them. Torch looked for a place as the parent
    imported it: /tmp, where it would leave them."""
    from torch._inductor import codecache

    headers = headers_folder(folder).joinpath(*Path(codecache._HEADER_DIR).parts[-2:])
    codecache._HEADER_DIR = str(headers)
    codecache._HEADER_LOCK_DIR = str(headers / "locks")


def _read(said: bytes) -> Told:
    told = Told()
    for line in said.splitlines():
        message = json.loads(line)
        assert "defect" not in message, message
        if "refused" in message:
            told.refused = message["refused"]
        elif "phase" in message:
            told.phases.append(message["phase"])
        elif "outcome" in message:  # else it says that it is set up
            told.outcome = message["outcome"]
    assert told.outcome, f"no outcome; last phases: {told.phases}"
    return told


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="child-", dir="/tmp") as name:
        yield Path(name)
