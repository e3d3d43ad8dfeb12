"""Which phase the program is in, reported as it is entered, and how long each took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Emit = Callable[[dict[str, Any]], None]


class Phases:
    """Emits `{"phase": name}` at each change; `seconds` is wall time by phase.

    `returned` is whether the function under test has returned since `marking` was called: what a
    run does after that is the backward pass.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._since = time.perf_counter()
        self.now = ""
        self.returned = False
        self.seconds: dict[str, float] = {}

    def enter(self, name: str) -> None:
        """Says that `name` begins, unless it is what goes on already."""
        if name == self.now:
            return
        self.stop()
        self.now = name
        self._emit({"phase": name})

    def set_up(self, what: str) -> None:
        """Says that `what` is done next, before the program."""
        self.enter("setup")
        self._emit({"setting up": what})

    def refused(self, why: str) -> None:
        """Says that eager attention is refused by design, and that the program is compiled."""
        self._emit({"refused": why})

    def stop(self) -> None:
        """Books the time since the last change."""
        now = time.perf_counter()
        if self.now:
            self.seconds[self.now] = self.seconds.get(self.now, 0.0) + now - self._since
        self._since = now

    def marking(self, function: Callable[..., Any], *, announce: bool) -> Callable[..., Any]:
        """`function`, noting when it first returns; with `announce` that begins the backward
        phase. Checkpointing calls it again in the backward pass, which changes nothing."""
        self.returned = False

        def marked(*args: Any) -> Any:
            result = function(*args)
            if not self.returned and announce:
                self.enter("backward")
            self.returned = True
            return result

        return marked

    @contextmanager
    def reporting_compiles(self) -> Iterator[None]:
        """Enters "compile" whenever dynamo or a lazy backward compiles, in any phase, and then
        goes back. `torch._dynamo.reset()` drops dynamo's callbacks: enter again after it.
        """
        from torch._dynamo.callback import callback_handler

        before = ["forward"]

        def start(_: Any) -> None:
            if self.now != "compile":
                before[0] = self.now
            self.enter("compile")

        def end(_: Any) -> None:
            self.enter(before[0])
            before[0] = "forward"

        callback_handler.register_start_callback(start)
        callback_handler.register_end_callback(end)
        try:
            yield
        finally:
            if start in callback_handler.start_callbacks:
                callback_handler.remove_start_callback(start)
            if end in callback_handler.end_callbacks:
                callback_handler.remove_end_callback(end)
