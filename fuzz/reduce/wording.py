"""One failure in the words of two releases of torch.

From release to release torch renames what it wraps an error in, moves the frame that raises it, and
mends its messages. `reworded` says when two runs of one program are the same failure in other
words, and what differs. It asks for more than the weak keys of `corpus.signature` do, which only
say that failures may be related: kind, phase and layer are the same in any case.
"""

from __future__ import annotations

import re

from attnfuzz.corpus.frames import is_stack, significant_frames
from attnfuzz.corpus.signature import diagnosis, exception_type, is_telling, parted, phase_class
from attnfuzz.corpus.volatile import mask_volatile
from attnfuzz.generators.model.outcome import Failure, FailureKind

FIRST_WORDS = 6
"""Words of a message's first sentence that are enough to know an error by."""

_QUOTED = re.compile(r"(\w+(?:Error|Exception))\(\\*(['\"])(.+)", re.S)
"""An exception that another one's message quotes, as `repr` gives it."""


def reworded(then: Failure, now: Failure) -> str | None:
    """What differs in words between two failures of one program with different strong keys, where
    it is no more than that; None where they are different failures."""
    if (then.kind, phase_class(then), then.layer) != (now.kind, phase_class(now), now.layer):
        return None
    if then.kind is FailureKind.ILLEGAL_ACCESS or parted(then):
        return None  # a device, and ranks that wait, report neither words nor a stack of their own
    if then.raised is not None and now.raised is not None:
        return _reraised(then, now) if then.signal == now.signal else None
    if then.raised is None and now.raised is None and then.oracle == now.oracle:
        return _fewer(then, now)
    return None


def _reraised(then: Failure, now: Failure) -> str | None:
    assert then.raised is not None and now.raised is not None
    types = exception_type(then.raised), exception_type(now.raised)
    error, error_now = innermost(then), innermost(now)
    if error == error_now and is_telling(error):
        if types[0] != types[1]:
            return f"the same error within {types[1]}, then {types[0]}"
        return "the same error, raised in another frame"
    if types[0] == types[1] and _begin_alike(error, error_now):
        return "the same error, explained in other words"
    frames = significant_frames(then.raised.frames)
    if (
        types[0] == types[1]
        and is_stack(frames)
        and frames == significant_frames(now.raised.frames)
    ):
        return "another message of the same exception, raised in the same frames"
    return None


def _begin_alike(error: str, other: str) -> bool:
    """Whether the first of several sentences is the same, and says enough."""
    first, found, _ = error.partition(". ")
    return bool(found) and other.startswith(f"{first}. ") and len(first.split()) >= FIRST_WORDS


def _fewer(then: Failure, now: Failure) -> str | None:
    """Of several outputs that were wrong alike some still are: of memory that is read too early,
    say, it is chance which."""
    before = {(diff.output, diff.what) for diff in then.diffs}
    after = {(diff.output, diff.what) for diff in now.diffs}
    if not after or not after < before:
        return None
    names = ", ".join(sorted({output for output, _ in after}))
    return f"of {', '.join(sorted({output for output, _ in before}))} only {names}"


def innermost(failure: Failure) -> str:
    """The error that started an exception, masked: what wraps it quotes it, each quote with more
    escapes than the one around it."""
    assert failure.raised is not None
    name, text = exception_type(failure.raised), diagnosis(failure)
    quoted = None
    while found := _QUOTED.search(text if quoted is None else quoted[1]):
        quoted = found[1], found[3]
    if quoted is None:
        return f"{name}: {text}"
    # As far as the quote goes, with whatever closes it and what is around it.
    inner = re.sub(r"\\+(?=['\"])", "", quoted[1])
    return mask_volatile(f"{quoted[0]}: {inner}").rstrip("'\") ")
