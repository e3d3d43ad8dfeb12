"""Exceptions as data: the innermost cause, its message, and the frames that say where.

torch's compiler wraps what went wrong several times over; a wrapper keeps its cause in
`inner_exception`, in `__cause__`, or, for LoweringException, in its text alone.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from attnfuzz.actors.child.outcomes import Data

# Raised while handling what they stand for, without `from`.
WRAPPERS = frozenset({
    "BackendCompilerFailed", "FailOnRecompileLimitHit", "InductorError",
    "InternalTorchDynamoError", "LoweringException", "SubgraphLoweringException",
    "TorchRuntimeError",
})  # fmt: skip
CONCLUSIVE = frozenset({"CppCompileError"})
"""Says all that its cause, a process's exit status, does not."""
ACTORS = Path(__file__).resolve().parents[1]
HARNESS = tuple(
    str(path)
    for path in (
        ACTORS / "child", ACTORS / "oracles", *(ACTORS / "targets").glob("*/execution.py")
    )
)  # fmt: skip
"""Folders and files whose frames are left out."""
_NOISE = re.compile(
    r"\n+(?:from user code:|Set TORCHDYNAMO_VERBOSE|You can suppress this exception|Found from :"
    r"|While executing )"
)
_LOWERED = re.compile(r"\A(?:(?:Subgraph)?LoweringException: )*(\w+(?:Error|Exception|Warning)): ")
_COMPILER_ERROR = re.compile(r"(?:^|: )((?:fatal )?error: .*)$", re.MULTILINE)


def links(error: BaseException) -> list[BaseException]:
    """The exception and its causes, outermost first: what was raised `from` what, and through the
    compiler's wrappers also what was merely being handled."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and all(current is not seen for seen in chain):
        chain.append(current)
        if type(current).__name__ in CONCLUSIVE:
            break
        following = getattr(current, "inner_exception", None) or current.__cause__
        if following is None and type(current).__name__ in WRAPPERS:
            following = None if current.__suppress_context__ else current.__context__
        current = following if isinstance(following, BaseException) else None
    return chain


def qualified_name(kind: type) -> str:
    """The type's name with its module, without "builtins."."""
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """`str(error)`, or a sentence where that itself raises."""
    try:
        return str(error)
    except BaseException as second:  # its own __str__ can do anything
        return f"<its text cannot be had: {type(second).__name__}>"


def describe(error: BaseException, source: Path) -> Data:
    """The data of a `Raised`."""
    causes = links(error)
    names = [qualified_name(type(link)) for link in causes]
    innermost = causes[-1]
    message = text_of(innermost)
    lowered = _LOWERED.match(message) if type(innermost).__name__ in WRAPPERS else None
    if lowered:
        names.append(lowered[1])
        message = message[lowered.end() :]
    return {
        "type": names[-1],
        "message": shorten(message),
        "chain": names,
        "frames": list(frames(innermost, source)) or list(frames(error, source)),
    }


def shorten(message: str) -> str:
    """The message without what is printed around it for a person; of a C++ compiler's output only
    the first error."""
    if message.startswith("C++ compile error"):
        found = _COMPILER_ERROR.search(message)
        return f"C++ compile error: {found[1]}" if found else "C++ compile error"
    message = _NOISE.split(message, maxsplit=1)[0]
    target = re.search(r"\n\s+target: [^\n]*", message)
    return (message[: target.end()] if target else message).strip()[:4000]


def frames(error: BaseException, source: Path) -> Iterator[Data]:
    """Where it was raised, outermost first, the harness's own frames left out."""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(HARNESS):
            yield {
                "file": relative(frame.filename, source),
                "function": frame.name,
                "line": frame.lineno or 0,
            }


def relative(file: str, source: Path) -> str:
    """A path as a frame gives it: within site-packages or the standard library; "<generated>" for
    code that Inductor wrote; else the file's name."""
    if file == str(source):
        return "<program>"
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            return file.rpartition(mark)[2]
    library = re.search(r"/lib/python3\.\d+/(.+)$", file)
    if library:
        return library[1]
    if re.search(r"/(?:inductor|torchinductor_\w+)/\w\w/c\w{20,}\.py$", file):
        return "<generated>"
    return file.rpartition("/")[2]


def sentences(error: BaseException) -> list[str]:
    """ "Type: message" of every link of the chain, plainly and with the type's module: what the
    patterns of refusals are searched in."""
    found = []
    for link in links(error):
        message = text_of(link)
        found.append(f"{type(link).__name__}: {message}")
        found.append(f"{qualified_name(type(link))}: {message}")
    return found


def stack(error: BaseException) -> str:
    """The traceback as Python prints it."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as second:
        return f"<no traceback: {type(second).__name__}>\n" + text_of(error)
