"""What a worker needs of the machine that it runs on, where that shares no disk with the
controller's: a scratch folder of its own, the preload files, the toolchain that is there."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import attnfuzz
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.availability import probe, statuses
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import WorkerConfig

PACKAGES = ("generators", "corpus", "actors")
"""What decides the programs and how they are judged: these folders of ours a worker loads."""

PRELOAD = "preload"


@dataclass(frozen=True, kw_only=True)
class Away:
    """What a worker on another machine is given beside its `WorkerConfig`, whose paths are not
    there. `toolchain` is an interpreter on its machine, None for the one that runs the worker.
    `preload` are names and texts of the files. `code` is the `digest` that it must have too."""

    toolchain: str | None = None
    preload: tuple[tuple[str, str], ...] = ()
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class About:
    """A worker as it really is: Ray's id of its `node`, its `host` and `pid`, the `environment` of
    its first target's toolchain (torch, compiler, machine), what each of its `targets` found there,
    and the variables that say which `devices` it sees. `others` are those on the other nodes over
    which it spreads ranks."""

    node: str
    host: str
    pid: int
    environment: dict[str, str]
    targets: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    others: tuple[About, ...] = ()


@cache
def digest() -> str:
    """Of the text of our code that draws, runs and judges programs: with another text a seed may
    give other programs."""
    root, found = Path(attnfuzz.__file__).parent, hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            inner = path.relative_to(root)
            is_data = inner.parts[:2] in (("corpus", "cases"), ("corpus", "planted"))
            if not is_data and path.suffix in (".py", ".cpp"):
                found.update(inner.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def settle(config: WorkerConfig, away: Away) -> tuple[WorkerConfig, Scratch]:
    """The configuration as it is on this machine, and the scratch folder, which is gone with this
    process. Raises SandboxError where programs cannot run here."""
    if away.code != digest():
        raise SandboxError(
            f"{platform.node()}: expected attnfuzz {away.code}, got {digest()}: another text of "
            "it is installed there"
        )
    python = away.toolchain or sys.executable
    if not os.access(python, os.X_OK):
        raise SandboxError(f"{platform.node()}: toolchain: there is no interpreter {python}")
    scratch = Scratch.create()
    preload = []
    for place, (name, text) in enumerate(away.preload):
        file = scratch.root / PRELOAD / str(place) / name
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        preload.append(str(file))
    settled = replace(config, scratch=str(scratch.root), toolchain=python, preload=tuple(preload))
    return settled, scratch


def found_by(names: tuple[str, ...], python: str) -> dict[str, str]:
    """What each target found. Raises SandboxError where one cannot be served; that of the CPU shows
    when its sandbox starts."""
    if all(name == DEFAULT or name not in TARGETS for name in names):
        return {}
    there = {status.name: status for status in statuses(probe(python), python)}
    for name in names:
        if name in there and not there[name].can_run:
            raise SandboxError(f"{platform.node()}: target {name}: {there[name].reason}")
    return {name: there[name].reason for name in names if name in there}
