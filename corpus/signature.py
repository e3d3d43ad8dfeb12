"""Signatures: what identifies a failure's cause.

The strong key of an exception is its kind, phase class, type, masked message and significant
frames; of a crash the signal and native frames; of a wrong result, which has no stack, the kernel,
the layer to blame and what is wrong first. It never has anything of the program's extents, dtypes
or seed, nor the machine's. Where a key has no stack it `needs_trigger`: buckets then also compare
what the programs have in common (see `corpus.bucket`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from attnfuzz.corpus.frames import is_stack, recursing_frames, significant_frames
from attnfuzz.corpus.title import title as shortened
from attnfuzz.corpus.volatile import first_diagnosis, mask_diagnosis, mask_volatile
from attnfuzz.corpus.waiting import waits
from attnfuzz.generators.model.outcome import (
    DEEPER,
    LAYOUT,
    PARTED,
    WAITING,
    WRITTEN,
    Diff,
    Failure,
    FailureKind,
    Layer,
    Phase,
    Raised,
    said,
)
from attnfuzz.generators.model.program import Program

_PHASE_CLASS = {
    Phase.SETUP: "setup",  # nothing was run: see `verdict.of_machine`
    Phase.BUILD: "eager",  # what makes the inputs is eager torch too
    Phase.REFERENCE: "reference",
    Phase.EAGER: "eager",
    Phase.COMPILE: "compiled",
    Phase.FORWARD: "compiled",
    Phase.BACKWARD: "backward",
    Phase.CHECK: "check",
    Phase.EXIT: "exit",
}


@dataclass(frozen=True, kw_only=True)
class Signature:
    """`strong`: equal for failures of one cause, e.g. "compile_error-CppCompileError-3f9a1c02de".
    `title`: one line for a person. `aliases`: weaker keys; failures that share one may be related.
    `needs_trigger`: the key has no stack, so that two causes may share it."""

    strong: str
    title: str
    aliases: tuple[str, ...] = ()
    needs_trigger: bool = False


def signature(failure: Failure, program: Program) -> Signature:
    """The signature of `failure`, of which `program` is an example."""
    if failure.kind is FailureKind.HANG or parted(failure):
        return _of_hang(failure, program)
    if failure.kind in (FailureKind.CRASH, FailureKind.ILLEGAL_ACCESS) and (
        failure.raised is None or failure.signal is not None
    ):
        return _of_crash(failure, program)
    if failure.raised is not None and "out of resource: " in failure.raised.message:
        return _of_tiles(failure, program.kernel.kind)
    if failure.kind is FailureKind.OUT_OF_MEMORY and _requested_bytes(failure) < MUCH:
        return _of_memory_gone(failure, program.kernel.kind)
    if failure.raised is not None:
        return _of_exception(failure, failure.raised, program)
    return _of_difference(failure, program)


OTHER_SIZE = "Received data size doesn't match expected size"
"""What gloo says when it aborts, as two ranks are in different collectives."""


def parted(failure: Failure) -> bool:
    """Whether it is one of the ways in which it ends when ranks take part in different collectives:
    simulated ranks wait for one another; processes hang, and their records say where they parted;
    one gets a message of another's size."""
    if failure.kind is FailureKind.HANG:
        lines = failure.evidence.get("ranks", "").splitlines()
        simulated = failure.raised is not None and failure.raised.message == WAITING
        return simulated or any(line.startswith(PARTED) for line in lines)
    ended = failure.kind in (FailureKind.CRASH, FailureKind.RUNTIME_ERROR)
    return ended and any(OTHER_SIZE in text for text in failure.evidence.values())


def key_without_stack(failure: Failure, program: Program) -> str | None:
    """The strong key of a crash that corrupted memory explains, had it no stack; None for other
    failures. Where memory is corrupt, what prints the stack may crash too: the same crash has one
    in one run and none in the next."""
    if failure.raised is None or not is_of_memory(failure):
        return None
    return signature(replace(failure, raised=replace(failure.raised, frames=())), program).strong


def phase_class(failure: Failure) -> str:
    """Phases that one cause may be seen in alike: compiling and running forward are one."""
    if failure.layer is Layer.EAGER and failure.phase not in (Phase.BACKWARD, Phase.EXIT):
        return "eager"
    return _PHASE_CLASS[failure.phase]


def output_class(output: str) -> str:
    """`out`, `lse`, `collectives`, of any cache `written` or, of any gradient, `grad`. Which caches
    and gradients are wrong depends on which the program has: buckets keep the names (see
    `corpus.bucket.Bucket.outputs`)."""
    if output in WRITTEN:
        return "written"
    return output if output in ("out", "lse", "collectives") else "grad"


def first_difference(diffs: Iterable[Diff]) -> Diff | None:
    """What is wrong first: caches before `out`, which later calls read from them, before `lse`
    before gradients. Where one of them is wrong the rest follows from it."""
    rank = dict.fromkeys(WRITTEN, -1) | {"out": 0, "lse": 1, "dq": 2, "dk": 3, "dv": 4}
    return min(diffs, key=lambda diff: (rank.get(diff.output, 5), diff.output), default=None)


def exception_type(raised: Raised) -> str:
    """The unqualified type that names the cause: the innermost, but for wrappers around a
    subprocess's failure the compiler's own."""
    names = [name.rsplit(".", 1)[-1] for name in (*raised.chain, raised.type)]
    for name in ("CppCompileError", "NoValidChoicesError", "FailOnRecompileLimitHit"):
        if name in names:
            return name
    if "NoValidChoicesError" in raised.message:
        return "NoValidChoicesError"
    return names[-1]


_WITHIN_OPERATOR = re.compile(
    r"This higher order operator doesn't work unless it is captured completely with "
    r"torch\.compile\. Got graph break/error: "
)
"""How dynamo begins to say what it cannot trace in a region or a checkpoint."""


def _of_exception(failure: Failure, raised: Raised, program: Program) -> Signature:
    name = exception_type(raised)
    message = diagnosis(failure)
    if within := _WITHIN_OPERATOR.match(message):
        name, message = "Unsupported", message[within.end() :]
    if name == "Unsupported":
        title = f"{name}: {message} ({phase_class(failure)})"
        return _of_untraceable(failure.kind, message, title, program.kernel.kind)
    mixed = failure.kind is FailureKind.TYPE_MIXING  # the operator is named, however it was reached
    frames = () if mixed else significant_frames(raised.frames)
    if name == "RecursionError":
        message = re.sub(r"(recursion depth exceeded) .*", r"\1", message)
        frames = recursing_frames(raised.frames)
    phase = phase_class(failure)
    strong = _key(failure.kind, name, phase, message, *frames)
    inner = said(message)
    text = inner if inner != message else f"{name}: {message}"
    return Signature(
        strong=strong,
        title=shortened(text, suffix=_where(frames) or f" ({phase})"),
        aliases=(
            _alias("message", name, message),
            *([_alias("frames", name, *frames)] if frames else []),
            _alias("kernel", failure.kind, name, program.kernel.kind),
        ),
        needs_trigger=not is_stack(frames) and not _is_specific(failure.kind, message),
    )


_SPECIFIC_WORDS = 3
_SAID_BY_COMPILERS = (FailureKind.COMPILE_ERROR, FailureKind.GRAPH_BREAK)


def _is_specific(kind: FailureKind, message: str) -> bool:
    """Whether a masked message says by itself what is wrong: a compiler's, dynamo's to the C++
    compiler's, does. What generated code says when it runs ("index out of bounds") does not."""
    return kind in _SAID_BY_COMPILERS and is_telling(message)


def is_telling(message: str) -> bool:
    """Whether a masked message has words enough to say what is wrong."""
    words = re.findall(r"[A-Za-z_]{3,}", re.sub(r"<[A-Z]+>", "", message))
    return len(words) >= _SPECIFIC_WORDS


def diagnosis(failure: Failure) -> str:
    """The masked message of what was raised, "" where nothing was; of a C++ compiler, whose output
    may be evidence only, its first error."""
    raised = failure.raised
    if raised is None:
        return ""
    if exception_type(raised) != "CppCompileError":
        return mask_volatile(raised.message)
    outputs = (failure.evidence[key] for key in sorted(failure.evidence))
    texts = (text for text in outputs if first_diagnosis(text))
    return mask_diagnosis(raised.message if "error: " in raised.message else next(texts, ""))


def _where(frames: tuple[str, ...]) -> str:
    """ " in lower_cpu", of the innermost frame in torch's own code."""
    named = [frame for frame in frames if is_stack([frame])]
    return f" in {named[0].rsplit(':', 1)[-1]}" if named else ""


def _of_crash(failure: Failure, program: Program) -> Signature:
    frames = significant_frames(failure.raised.frames) if failure.raised else ()
    signal = failure.signal or "exit"
    phase, layer = phase_class(failure), _layer(failure)
    kernel = program.kernel.kind
    native = [name for name in frames if ".so:" in name and is_stack([name])]
    # Corrupted memory ends in one signal or another, with whatever stack is left: Python's frames
    # only say who called what crashed, and the kernel and the layer say that better.
    bare = "memory" if is_of_memory(failure) else signal
    strong = _key(failure.kind, signal if native else bare, phase, *(native or (kernel, layer)))
    where = _where(tuple(native))
    return Signature(
        strong=strong,
        title=shortened(f"{signal} in the {phase} phase of {kernel} attention", where),
        aliases=(_alias("crash", bare, kernel), _alias("kernel", failure.kind, kernel, layer)),
        needs_trigger=not native,
    )


MUCH = 1 << 32
"""Bytes: who requests more at once is the cause, whatever was taken before."""


def _requested_bytes(failure: Failure) -> int:
    """The bytes that could not be had, as PyTorch's allocator says; 0 where nobody does."""
    message = failure.raised.message if failure.raised else ""
    found = re.search(r"tried to allocate (\d+) bytes", message)
    return int(found[1]) if found else 0


def _of_memory_gone(failure: Failure, kernel: str) -> Signature:
    """Who requests the last of the memory is chance, and so is when: a leak shows in whatever
    calls the kernel often enough."""
    message = mask_volatile(failure.raised.message) if failure.raised else failure.oracle
    return Signature(
        strong=_key(failure.kind, kernel),
        title=shortened(f"{kernel} attention runs out of memory: {message}"),
        aliases=(_alias("kernel", failure.kind, kernel),),
    )


def _of_tiles(failure: Failure, kernel: str) -> Signature:
    """Triton finds a kernel's tiles too large for the card: they are chosen for the forward and the
    backward apart."""
    graph = failure.evidence.get("graph", "forward")
    message = failure.raised.message if failure.raised else ""
    what = re.search(r"out of resource: ([\w ]+)", message)
    resource = what[1] if what else "resources"
    return Signature(
        strong=_key(failure.kind, kernel, graph, resource),
        title=shortened(f"{kernel} attention's {graph} takes more {resource} than the card has"),
        aliases=(_alias("kernel", failure.kind, kernel),),
    )


_ALLOCATOR = re.compile(r"(?:free|malloc|realloc|munmap_chunk)\w*\(\)|corrupt|double free")


def is_of_memory(failure: Failure) -> bool:
    """Whether a crash is one of the ways in which corrupted memory shows."""
    if failure.signal == "SIGABRT":
        return failure.raised is not None and bool(_ALLOCATOR.search(failure.raised.message))
    return failure.signal in ("SIGSEGV", "SIGBUS")


def _of_hang(failure: Failure, program: Program) -> Signature:
    stack = failure.raised.frames if failure.raised else ()
    # Which frames are the outermost of those recorded depends on the moment where not all are.
    whole = not any(frame.file == DEEPER for frame in stack)
    # When ranks that have parted notice it, and where, is chance.
    apart = parted(failure)
    frames = significant_frames(stack, outermost=True) if whole and not apart else ()
    phase, kernel = phase_class(failure), _attention(program)
    cause = ("parted", kernel) if apart else (phase, *(frames or (kernel,)))
    title = f"{kernel} attention hangs in the {phase} phase"
    if failure.kind is not FailureKind.HANG:  # one rank got a message of another size, and ended
        title = f"ranks of {kernel} attention are in different collectives in the {phase} phase"
    title += _where(frames[::-1])
    waiting = waits(failure)
    return Signature(
        strong=_key(FailureKind.HANG, *cause),
        title=shortened(title, f": {waiting}" if waiting else ""),
        aliases=(_alias("hang", phase, kernel),),
        needs_trigger=True,
    )


def _attention(program: Program) -> str:
    """What computes the attention, in words: the kernel, and the method by which ranks share it."""
    kernel, mesh = program.kernel.kind, program.mesh
    return kernel if mesh is None or mesh.method is None else f"{mesh.method.kind} {kernel}"


def _of_difference(failure: Failure, program: Program) -> Signature:
    kernel, layer = _attention(program), _layer(failure)
    first = first_difference(failure.diffs)
    wrong = _what_is_wrong(failure, first)
    group = output_class(first.output) if first else failure.oracle
    subject = f" of {kernel} attention" + ("" if layer == "eager" else f" ({layer})")
    name = first.output if first else failure.oracle or "something"
    # A layout is judged once the numbers are right: what makes it wrong is another cause.
    of_layout = failure.kind is FailureKind.METADATA_MISMATCH and _property(first) in LAYOUT
    if first is not None and first.what == "graph":
        reason = mask_volatile(failure.evidence.get("graph breaks", first.actual).split("\n\n")[0])
        title = f"graph break in compiled attention: {reason}"
        return _of_untraceable(failure.kind, reason, title, kernel)
    return Signature(
        strong=_key(failure.kind, f"{kernel}-{layer}", *wrong),
        title=shortened(
            f"{_ADJECTIVE[failure.kind].format(what=_property(first))} `{name}`{subject}"
        ),
        aliases=(
            _alias("layout" if of_layout else "numbers", kernel, layer, group),
            _alias("kernel", failure.kind, kernel, layer),
        ),
        needs_trigger=True,
    )


def _of_untraceable(kind: FailureKind, reason: str, title: str, kernel: str) -> Signature:
    """What dynamo says that it cannot trace is the cause, whether it breaks the graph there or
    raises, as with fullgraph=True."""
    return Signature(
        strong=f"untraceable-{_digest(reason)}",
        title=shortened(title),
        aliases=(_alias("kernel", kind, kernel),),
        needs_trigger=not _is_specific(FailureKind.GRAPH_BREAK, reason),
    )


_ADJECTIVE = {kind: kind.value.replace("_", " ") + ":" for kind in FailureKind} | {
    FailureKind.WRONG_RESULT: "wrong",
    FailureKind.NONFINITE: "non-finite",
    FailureKind.METADATA_MISMATCH: "wrong {what} of",
    FailureKind.NONDETERMINISM: "non-deterministic",
    FailureKind.MUTATION: "mutated",
    FailureKind.COMPILE_TIME: "growing {what} of",
}


def _property(first: Diff | None) -> str:
    return first.what if first else "metadata"


def _what_is_wrong(failure: Failure, first: Diff | None) -> tuple[str, ...]:
    if first is None:
        return (failure.oracle,)
    if failure.kind in (FailureKind.WRONG_RESULT, FailureKind.NONFINITE):
        return (output_class(first.output), *([first.what] if first.what == "nan" else []))
    if failure.kind is FailureKind.METADATA_MISMATCH:
        # Strides that are wrong make other things wrong; what is named first is the cause.
        # Ranks that disagree about the result or about its log-sum-exp do so for one reason.
        alike = first.what == "replicas" and first.output == "lse"
        return ("out" if alike else output_class(first.output), first.what)
    if failure.kind is FailureKind.MUTATION:
        return (first.output, first.what)
    return (output_class(first.output), first.what)


def _layer(failure: Failure) -> str:
    return failure.layer.value if failure.layer else "unknown"


def _key(kind: FailureKind, name: str, *parts: str) -> str:
    return f"{kind.value}-{_slug(name)}-{_digest(kind.value, name, *parts)}"


def _alias(sort: str, *parts: str) -> str:
    return f"{sort}-{_digest(*parts)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "", text)[:40] or "unknown"
