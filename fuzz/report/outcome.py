"""What became of a program, as text for a person and as data."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.report.escape import cut, plain
from attnfuzz.fuzz.report.tables import facts
from attnfuzz.generators.model.codec import outcome_to_data, program_id
from attnfuzz.generators.model.outcome import CompiledKernel, Diff, Failure, Frame, Outcome
from attnfuzz.generators.model.program import Program

FRAMES_SHOWN = 6
EVIDENCE_LINES = 40
"""Lines shown of each piece of evidence: its end, which is where compilers and stacks say most."""


def outcome_json(program: Program, outcome: Outcome) -> dict[str, Any]:
    """The program's id, the outcome, and for a failure its key and title."""
    data: dict[str, Any] = {"id": program_id(program), "outcome": outcome_to_data(outcome)}
    if outcome.failure is not None:
        named = signature(outcome.failure, program)
        data |= {"key": named.strong, "title": named.title}
    return data


def outcome_text(program: Program, outcome: Outcome, target: str = DEFAULT) -> RenderableType:
    """Status, failure, what it cost, what the compiler did."""
    cost = outcome.cost
    pairs = {"program": program_id(program)}
    stand_in = TARGETS[target].stand_in
    if stand_in is not None:
        pairs["target"] = f"{target}: {stand_in.treatment}, which is not there"
    pairs["outcome"] = outcome.status.replace("_", " ")
    if outcome.rejection is not None:
        pairs["refused" if outcome.status == "rejected" else "why"] = outcome.rejection
    pairs["cost"] = f"{cost.wall_s:.2f} s, {cost.cpu_s:.2f} s of CPU, {cost.peak_rss_mb:,.0f} MiB"
    if cost.phases:
        pairs["phases"] = ", ".join(f"{name} {took:.2f} s" for name, took in cost.phases.items())
    if outcome.features:
        pairs["features"] = ", ".join(outcome.features)
    for name, why in outcome.skipped.items():
        pairs[f"not judged: {name}"] = why
    parts: list[RenderableType] = [facts(pairs)]
    if outcome.kernels:
        parts += ["", kernel_table(outcome.kernels)]
    if outcome.failure is not None:
        parts += ["", failure_text(program, outcome.failure)]
    return Group(*parts)


def kernel_table(kernels: tuple[CompiledKernel, ...]) -> Table:
    """What each compiled kernel takes of the card."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("kernel")
    for column in ("shared bytes", "registers", "stack bytes", "cubin bytes"):
        table.add_column(column, justify="right")
    for kernel in kernels:
        taken = (kernel.shared_bytes, kernel.registers, kernel.stack_bytes, kernel.cubin_bytes)
        table.add_row(Text(plain(kernel.name)), *(f"{number:,}" for number in taken))
    return table


def failure_text(program: Program, failure: Failure) -> RenderableType:
    """What failed, where, the exception or the differences, and the evidence."""
    named = signature(failure, program)
    pairs = {
        "failure": named.title,
        "kind": failure.kind.value,
        "phase": failure.phase.value,
        "layer": failure.layer.value if failure.layer else "unknown",
        "oracle": failure.oracle or "-",
        "key": named.strong,
    }
    if failure.signal is not None:
        pairs["signal"] = failure.signal
    if failure.raised is not None:
        pairs["exception"] = failure.raised.type
        pairs["message"] = cut(failure.raised.message)
        pairs["frames"] = "\n".join(map(frame_text, failure.raised.frames[-FRAMES_SHOWN:]))
    parts: list[RenderableType] = [facts({name: text for name, text in pairs.items() if text})]
    if failure.diffs:
        parts += ["", diff_table(failure.diffs)]
    for name, text in failure.evidence.items():
        shown = plain(cut(tail(text)))
        parts += ["", Rule(Text(plain(name)), align="left", style="dim"), Text(shown)]
    return Group(*parts)


def frame_text(frame: Frame) -> str:
    """`function (file:line)`; a native frame has no line."""
    where = f"{frame.file}:{frame.line}" if frame.line else frame.file
    return f"{frame.function} ({where})"


def diff_table(diffs: tuple[Diff, ...]) -> Table:
    """The differences, one a row; errors are absolute."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("output", "call", "what", "expected", "actual", "error", "budget"):
        table.add_column(column)
    for diff in diffs:
        numbers = ("-" if n is None else f"{n:.3g}" for n in (diff.error, diff.budget))
        cells = (diff.output, str(diff.call), diff.what, diff.expected, diff.actual, *numbers)
        table.add_row(*map(Text, map(plain, cells)))
    return table


def tail(text: str) -> str:
    """The last `EVIDENCE_LINES` lines, and how many were left out."""
    lines = text.rstrip().splitlines()
    left_out = len(lines) - EVIDENCE_LINES
    if left_out <= 0:
        return "\n".join(lines)
    return "\n".join([f"({left_out} lines before)", *lines[-EVIDENCE_LINES:]])
