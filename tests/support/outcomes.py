"""What a sandbox says of a program, and that it serves the next one."""

from __future__ import annotations

from attnfuzz.actors.sandbox import procs
from attnfuzz.actors.sandbox.compiled_once import KEPT, KERNELS
from attnfuzz.actors.sandbox.fork_server import MARKER
from attnfuzz.actors.sandbox.job import Job
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.generators.model.outcome import FailureKind, Outcome, Phase
from tests.support.sources import source


def assert_undisturbed(sandbox: Sandbox) -> None:
    """The sandbox serves the next program, and nothing is left of the last."""
    assert sandbox.run(source(), Job()).status == "passed"
    server = sandbox._server
    assert server is not None
    assert server.below() == []
    assert len(procs.marked(MARKER, server.marker)) == 1  # the zygote
    left = {path.name for path in sandbox._folder.iterdir()} - {KEPT, KERNELS}
    assert left == {f"zygote-{server.marker}.txt"}


def failing(outcome: Outcome) -> tuple[FailureKind, Phase]:
    assert outcome.failure is not None, outcome
    return outcome.failure.kind, outcome.failure.phase


def said(outcome: Outcome) -> str:
    assert outcome.failure is not None and outcome.failure.raised is not None
    return outcome.failure.raised.message


def functions(outcome: Outcome) -> list[tuple[str, str]]:
    assert outcome.failure is not None and outcome.failure.raised is not None
    return [(frame.file, frame.function) for frame in outcome.failure.raised.frames]
