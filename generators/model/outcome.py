"""Outcomes: what became of a run. Plain data, shared by those who run and those who keep."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT

Element = Annotated[int, Field(ge=0)]
"""An index into the elements of a tensor, flat."""


class FailureKind(StrEnum):
    """The closed list of ways to fail."""

    COMPILE_ERROR = "compile_error"
    NO_VALID_CHOICES = "no_valid_choices"
    TYPE_MIXING = "type_mixing"
    COMPILE_TIME = "compile_time"
    HANG = "hang"
    WRONG_RESULT = "wrong_result"
    NONFINITE = "nonfinite"
    METADATA_MISMATCH = "metadata_mismatch"
    GRAPH_BREAK = "graph_break"
    RECOMPILE_LIMIT = "recompile_limit"
    CRASH = "crash"
    ILLEGAL_ACCESS = "illegal_access"
    OUT_OF_MEMORY = "out_of_memory"
    NONDETERMINISM = "nondeterminism"
    MUTATION = "mutation"
    RUNTIME_ERROR = "runtime_error"


WORST_FIRST = (
    FailureKind.CRASH,
    FailureKind.ILLEGAL_ACCESS,
    FailureKind.HANG,
    FailureKind.WRONG_RESULT,
    FailureKind.NONFINITE,
    FailureKind.MUTATION,
    FailureKind.NONDETERMINISM,
    FailureKind.OUT_OF_MEMORY,
    FailureKind.METADATA_MISMATCH,
    FailureKind.TYPE_MIXING,
    FailureKind.COMPILE_TIME,
    FailureKind.COMPILE_ERROR,
    FailureKind.NO_VALID_CHOICES,
    FailureKind.RUNTIME_ERROR,
    FailureKind.GRAPH_BREAK,
    FailureKind.RECOMPILE_LIMIT,
)
"""What a user of torch cannot survive or notice comes before what tells him that it failed."""

SEVERITY = {kind.value: place for place, kind in enumerate(WORST_FIRST)}


class Phase(StrEnum):
    """`setup` is what comes before the program: its preload files, the import of a function of
    one's own."""

    SETUP = "setup"
    BUILD = "build"
    REFERENCE = "reference"
    EAGER = "eager"
    COMPILE = "compile"
    FORWARD = "forward"
    BACKWARD = "backward"
    CHECK = "check"
    EXIT = "exit"


class Layer(StrEnum):
    """The first layer at which a failure shows. What is exported goes through `export` where other
    programs go through dynamo."""

    EAGER = "eager"
    DYNAMO = "dynamo"
    EXPORT = "export"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One stack frame; `file` is relative to site-packages ("torch/_inductor/…"), or "<program>"
    for the program's own source, or a library's file name for a native frame (line 0)."""

    __pydantic_config__ = STRICT
    file: str
    function: str
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An exception: fully qualified `type` of the innermost cause, its `message`, `chain` the types
    from outermost to innermost, `frames` of the innermost, outermost frame first. Of a
    NoValidChoicesError they are those of what refused the last choice, where something did."""

    __pydantic_config__ = STRICT
    type: str
    message: str
    chain: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()


_MET_ON_FAKE_TENSORS = re.compile(
    r"(?:\bgot |^)(\w+(?:Error|Exception))\((['\"])(.+?)(?:\2\)|$)", re.S
)


def said(message: str) -> str:
    """What an exception's message says, without its wrapping: of an error that dynamo met when it
    ran a call on fake tensors, that error."""
    found = _MET_ON_FAKE_TENSORS.search(message)
    return f"{found[1]}: {found[3]}".strip() if found else message.strip()


@dataclass(frozen=True, kw_only=True)
class Diff:
    """A disagreement about one `output` ("out", "lse", "dq", …) of one call. `what` names the
    property ("value", "stride", "dtype", …); `error` and `budget` are absolute, for values only.
    `block`: the budget is that of the elements from the first of these to before the second, in the
    order of their indices; without it that of the whole output."""

    __pydantic_config__ = STRICT
    output: str
    what: str
    expected: str
    actual: str
    error: float | None = None
    budget: float | None = None
    block: tuple[Element, Element] | None = None
    call: Annotated[int, Field(ge=0, le=1000)] = 0


LAYOUT = ("stride", "requires_grad", "aliases")
"""What `Diff.what` may be of that is judged once the numbers are found right: as in
`oracles.metadata`, which needs torch."""

WRITTEN = frozenset({"cache_k", "cache_v"})
"""What `Diff.output` may be that is an argument which the function writes."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """`oracle` names the check that failed; `evidence` holds texts for a person (stacks, compiler
    output, generated code excerpts), each at most 20 kB."""

    __pydantic_config__ = STRICT
    kind: FailureKind
    phase: Phase
    layer: Layer | None = None
    oracle: str = ""
    raised: Raised | None = None
    diffs: tuple[Diff, ...] = ()
    signal: str | None = None
    evidence: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of wall and CPU of the child, peak resident MiB, and wall seconds by phase."""

    __pydantic_config__ = STRICT
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_rss_mb: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A kernel that was compiled for a card: bytes of shared memory that a block of it takes,
    registers and bytes of stack that a thread does, and bytes of its cubin."""

    __pydantic_config__ = STRICT
    name: str
    shared_bytes: int
    registers: int
    stack_bytes: int
    cubin_bytes: int


DEEPER = "..."
"""The file and function of a frame that stands for outer ones which are not told."""

WAITING = "the ranks wait for one another"
"""What is said of simulated ranks that have come together in different collectives."""

PARTED = "parted at the "
"""How the line of a hang's evidence `ranks` begins that says where processes parted."""

DEADLINE = "deadline"
"""What the outcome has `skipped` of a program that missed a deadline and then, given more time, did
not: its cost is that of both runs."""


EAGER_REFUSES = "eager attention"
"""The evidence of a failure of the compiled program where eager attention is refused by design."""


PRELOAD_FILE, TARGET = "preload file", "kernel.target"
OF_SETUP = (PRELOAD_FILE, TARGET)
"""How the `rejection` of what was not run begins; `actors.child.setup` writes it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`rejected` is by design; `rejection` then says which refusal. `not_run`: a preload file
    raised, or a function of one's own is not to be had, which `rejection` says in a sentence.
    `lost`: the worker did not survive the run, or failed itself, and `rejection` says which.
    `stopped`: it took more CPU time than a new program may, and is run again later.
    `features` are what the compiler did, as short strings; `kernels` those it compiled, where a
    virtual card was asked to load them. `skipped` names oracles that did not apply, and why."""

    __pydantic_config__ = STRICT
    status: Literal["passed", "rejected", "failed", "stopped", "not_run", "lost"]
    failure: Failure | None = None
    rejection: str | None = None
    features: tuple[str, ...] = ()
    kernels: tuple[CompiledKernel, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
