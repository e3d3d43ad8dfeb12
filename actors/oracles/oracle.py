"""What an oracle is: a judge of the runs of one program.

An execution goes through its oracles in the order of `oracles.registry`; a target's execution may
have fewer. A further oracle is a subclass in a file of its own, and an entry there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from attnfuzz.actors.child.compiler_log import CompilerLog
from attnfuzz.actors.child.outcomes import Data, Failed, failure
from attnfuzz.actors.child.program_module import Outputs, ProgramModule
from attnfuzz.actors.oracles.expectation import Expectation

Function = Callable[..., Any]


@dataclass
class Run:
    """One run of `function`, which is the program's attention as it is written (`layer` "eager")
    or compiled, with the arguments of one `call`. `outputs` and their properties (`described`) are
    there after it. `log` is what the compiler did, None for eager."""

    function: Function
    call: int
    layer: str
    args: tuple[Any, ...]
    names: list[str]
    log: CompilerLog | None = None
    outputs: Outputs = field(default_factory=dict)
    described: dict[str, Data] = field(default_factory=dict)


class Judged(Protocol):
    """What an oracle may use of the execution that it judges."""

    settings: Data
    compile: Data | None
    program: ProgramModule
    skipped: dict[str, str]
    """Why something was not judged, by name."""
    expectations: list[Expectation]
    """What each call should give; none where no oracle needs the reference."""
    eager: list[Run]
    """The eager run of each call, as far as they are done."""
    digests: list[tuple[str, int, str, str]]
    """Of one of several ranks: layer, call and name of each result, and what its bits give."""

    def outputs(self, function: Function, args: tuple[Any, ...], layer: str) -> Outputs:
        """What one more run gives, on arguments as `ProgramModule.inputs` makes them."""

    def refusal_of(self, sentences: list[str]) -> str | None:
        """Why one of the sentences, "Type: message" each, is a refusal by design."""


class Oracle:
    """A judge of one execution. Its methods are called as the execution goes on; each raises
    `Failed` where it finds the program wrong, and does nothing unless it is overridden."""

    needs_reference: ClassVar[bool] = False
    """Whether the program's float64 reference is computed for it."""

    def __init__(self, execution: Judged) -> None:
        self.execution = execution

    def before_run(self, run: Run) -> None:
        """Before each run, with fresh arguments."""

    def after_run(self, run: Run) -> None:
        """After it, before what it gave is looked at."""

    def check(self, run: Run) -> None:
        """What a run gave."""

    def check_again(self, run: Run) -> None:
        """After `check` of all oracles, where time is spent on another run of the same call: every
        eager one, and the last compiled one."""

    def after_eager(self) -> None:
        """When all eager runs are done."""


def fail_on(
    kind: str,
    oracle: str,
    diffs: Sequence[Data],
    layer: str,
    evidence: dict[str, str] | None = None,
) -> None:
    """Raises `Failed` if there are `diffs`."""
    if diffs:
        raise Failed(
            failure(kind, "check", layer=layer, oracle=oracle, diffs=diffs, evidence=evidence)
        )
