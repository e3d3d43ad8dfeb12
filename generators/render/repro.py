"""The reproduction of a failure: the program's text, trimmed to what shows it."""

from __future__ import annotations

import re

from generators.outcome import Failure, FailureKind
from generators.program import Program
from generators.render.checks import Check, check_for
from generators.render.parts import DIRTY_DEVICE_MEMORY, DIRTY_MEMORY, Block, Parts, assemble, parts
from generators.render.scene import indented

_DRAWN = re.compile(r"torch\.(?:randn|randint|randperm|rand)\(")

WHATEVER_THE_NUMBERS = frozenset({
    FailureKind.COMPILE_ERROR, FailureKind.NO_VALID_CHOICES, FailureKind.TYPE_MIXING,
    FailureKind.COMPILE_TIME, FailureKind.METADATA_MISMATCH, FailureKind.GRAPH_BREAK,
    FailureKind.RECOMPILE_LIMIT, FailureKind.OUT_OF_MEMORY,
})  # fmt: skip
"""Kinds of failure that no number in a tensor decides."""


def repro(
    program: Program, failure: Failure, *, by_value: bool = False, device: str = "cpu"
) -> str:
    """A script that needs torch (and the kernel's package) alone, raises where `failure` shows and
    exits 0 where it does not. Calls after the failing one are left out. With `by_value` what is
    decided by what lies in memory (a crash, a result that is not finite) may show as a wrong result
    as well: memory that was never written is NaN in one process and some number in the next.
    Everything is on `device`; where numbers may matter they are drawn on the CPU, as they were."""
    times = "times" if failure.kind is FailureKind.COMPILE_TIME else ""
    p = parts(program, device, device, times)
    check = check_for(p, failure, by_value)
    blocks: list[Block] = [] if device == "cpu" else [[f'torch.set_default_device("{device}")']]
    blocks += [check.first] if check.first else []
    if program.dirty_memory:
        blocks.append(DIRTY_MEMORY if device == "cpu" else DIRTY_DEVICE_MEMORY)
    blocks += [*p.mods, *p.cached_mods]
    if not check.inputs_only:
        blocks += [*p.rope, *p.attention] if _calls_attention(check) else p.rope
        blocks += p.reference if check.reference else []
        blocks += [p.run.function()] if check.run else []
        blocks += check.functions
        blocks += [p.compiled] if check.compiled else []
    blocks += _calls(p, check, failure)
    if device != "cpu" and failure.kind not in WHATEVER_THE_NUMBERS:
        blocks = [[drawn_on_cpu(line, device) for line in block] for block in blocks]
    text = assemble(blocks, p.inputs)
    head = title(failure)
    mesh = program.mesh
    if mesh is not None and mesh.ranks == "processes":
        head += f"\n\ntorchrun --nproc-per-node {mesh.world_size} repro.py\n"
    return f'"""{head}"""\n\n{text}'


def drawn_on_cpu(line: str, device: str) -> str:
    """A statement with the random tensors that it makes on `device` drawn on the CPU instead: one
    seed gives other numbers there."""
    done, line = "", line.replace(f'torch.Generator("{device}")', "torch.Generator()")
    while drawn := _DRAWN.search(line):
        end = _closing(line, drawn.end())
        moved = "" if line.startswith(".to(", end + 1) else f'.to("{device}")'
        done += f'{line[:end]}, device="cpu"){moved}'
        line = line[end + 1 :]
    return done + line


def _closing(line: str, start: int) -> int:
    """Where the parenthesis closes that was opened before `start`."""
    depth = 1
    for position in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[position], 0)
        if not depth:
            return position
    raise ValueError(f"no closing parenthesis: {line}")


def _calls_attention(check: Check) -> bool:
    used = "\n".join([*check.statements, *check.last])
    return check.compiled or bool(re.search(r"\battention\b", used))


def _calls(p: Parts, check: Check, failure: Failure) -> list[Block]:
    """The inputs and the calls, at top level: straight for one call, a loop for several."""
    if not p.program.calls:
        return [p.input_statements, [*check.statements, *check.last]]
    calls = p.calls
    if failure.diffs:
        calls = calls[: failure.diffs[0].call + 1]
    loop = [
        f"for B, Lq, Lkv in {calls}:",
        *indented([*p.input_statements, *check.statements]),
    ]
    return [loop, check.last] if check.last else [loop]


def title(failure: Failure) -> str:
    """One line: kind, layer, and what is wrong."""
    where = f" at {failure.layer.value}" if failure.layer is not None else ""
    head = f"{failure.kind.value}{where}"
    if failure.raised is not None:
        # Folders are those of the run that failed: only a file's name means anything elsewhere.
        message = re.sub(r"/(?:[^\s/]+/)+", "", failure.raised.message.strip().split("\n")[0])
        # What generated code raises begins with where: a file that is named anew each time.
        message = re.sub(r"^operator\(\), \w+(?:\.main)?\.cpp:\d+, ", "", message)
        detail = f"{failure.raised.type.rpartition('.')[2]}: {message}".rstrip(": ")
    elif failure.diffs:
        detail = _difference(failure)
    else:
        detail = failure.signal or f"in {failure.phase.value}"
    line = f"{head}: {detail}"
    line = line.replace("\\", "/").replace('"', "'")
    return line if len(line) <= 92 else line[:90] + " …"


def _difference(failure: Failure) -> str:
    diff = failure.diffs[0]
    if diff.error is not None and diff.budget is not None:
        return f"{diff.output} is off by {diff.error:.3g}, rounding explains {diff.budget:.3g}"
    return f"{diff.what} of {diff.output}: expected {diff.expected}, got {diff.actual}"
