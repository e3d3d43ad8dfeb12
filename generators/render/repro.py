"""The reproduction of a failure: the program's text, trimmed to what shows it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from types import MappingProxyType

from attnfuzz.generators.model.outcome import EAGER_REFUSES, Failure, FailureKind, said
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.check import Check
from attnfuzz.generators.render.checks import check_for
from attnfuzz.generators.render.devices import off_default_device
from attnfuzz.generators.render.in_place import drawn_together, in_place
from attnfuzz.generators.render.mesh import launched
from attnfuzz.generators.render.modes import global_modes, runs
from attnfuzz.generators.render.parts import (
    DIRTY_DEVICE_MEMORY,
    DIRTY_MEMORY,
    Block,
    Parts,
    assemble,
    parts,
)
from attnfuzz.generators.render.quoting import docstring
from attnfuzz.generators.render.scene import indented

_DRAWN = re.compile(r"torch\.(?:randn|randint|randperm|rand)\(")

WHATEVER_THE_NUMBERS = frozenset({
    FailureKind.COMPILE_ERROR, FailureKind.NO_VALID_CHOICES, FailureKind.TYPE_MIXING,
    FailureKind.COMPILE_TIME, FailureKind.METADATA_MISMATCH, FailureKind.GRAPH_BREAK,
    FailureKind.RECOMPILE_LIMIT, FailureKind.OUT_OF_MEMORY,
})  # fmt: skip
"""Kinds of failure that no number in a tensor decides."""


TITLE_WIDTH, TITLE_LINES = 92, 2


def repro(
    program: Program,
    failure: Failure,
    *,
    by_value: bool = False,
    device: str = "cpu",
    all_ranks: bool = False,
    where: str = "",
    preload: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A script that needs torch (and the kernel's package) alone, raises where `failure` shows and
    exits 0 where it does not. Calls after the failing one are left out. With `by_value` what is
    decided by what lies in memory (a crash, a result that is not finite) may show as a wrong result
    as well: memory that was never written is NaN in one process and some number in the next.
    Everything is on `device`; where numbers may matter they are drawn on the CPU, as they were.
    `all_ranks` as in `Scene`.
    `where` says in the script's docstring what it is for, in a sentence or two. `preload` are the
    texts of Python files, by name, that are to run first: each becomes a function."""
    times = "times" if failure.kind is FailureKind.COMPILE_TIME else ""
    p = parts(program, device, device, times, all_ranks, is_judged(failure))
    check = in_place(p, check_for(p, failure, by_value))
    blocks: list[Block] = [] if device == "cpu" else [[f'torch.set_default_device("{device}")']]
    blocks += [check.first] if check.first else []
    if program.dirty_memory:
        blocks.append(DIRTY_MEMORY if device == "cpu" else DIRTY_DEVICE_MEMORY)
    blocks.append(global_modes(program))
    blocks += [*p.mods, *p.cached_mods, *p.rewriting]
    if not check.inputs_only:
        blocks += p.rope
        blocks += p.attention[:-1] if check.in_place else []
        blocks += p.attention if calls_attention(check) else []
        blocks += p.undropped
        blocks += p.reference if check.reference else []
        blocks += [p.run.function(), *runs(program, check.compiled)] if check.run else []
        blocks += check.functions
        blocks += p.compiled if check.compiled else []
    calls = _calls(p, check, failure)
    if device != "cpu" and p.plugin.has_fast_path:
        calls = [off_default_device(block, device) for block in calls]
    blocks += calls
    if device != "cpu" and failure.kind not in WHATEVER_THE_NUMBERS:
        blocks = [[drawn_on_cpu(line, device) for line in block] for block in blocks]
    text = assemble(blocks, p)
    head = "\n\n".join(filter(None, [title(failure), textwrap.fill(where, TITLE_WIDTH)]))
    head += launched(p.scene)
    first = "".join(_planted(name, planted) for name, planted in preload.items())
    return f"{docstring(head)}\n\n{first}{text}"


def is_judged(failure: Failure) -> bool:
    """Whether numbers may be wrong: nothing is raised, nothing dies and nothing hangs."""
    ends = failure.raised is not None or failure.signal is not None
    return not ends and failure.kind is not FailureKind.HANG


def _planted(name: str, text: str) -> str:
    """A Python file as a function, so that its names are not the script's, and the call of it."""
    body = textwrap.indent(re.sub(r"\n{3,}", "\n\n", text.strip()), "    ")
    function = name.removesuffix(".py")
    return f"\ndef {function}():\n{body}\n\n\n{function}()\n\n"


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


def calls_attention(check: Check) -> bool:
    """Whether the statements of `check` use the attention function."""
    used = "\n".join([*check.statements, *check.last])
    return check.compiled or bool(re.search(r"\battention\b", used))


def _calls(p: Parts, check: Check, failure: Failure) -> list[Block]:
    """The inputs and the calls, at top level: straight for one call, a loop for several."""
    if not p.parameters:
        return _straight(p, check)
    loop = [loop_head(p, failure), *indented([*inputs_of(p, check), *check.statements])]
    return [loop, check.last] if check.last else [loop]


def _straight(p: Parts, check: Check) -> list[Block]:
    """The inputs, and what is done with them."""
    made, done = inputs_of(p, check), [*check.statements, *check.last]
    mesh = p.program.mesh
    if mesh is None or (mesh.method is None and not p.plugin.spreads_itself):
        return [made, done]
    return [[*drawn_together(made), *check.before], done]


def loop_head(p: Parts, failure: Failure) -> str:
    """The head of a loop over the calls, up to the failing one."""
    calls = p.each
    if failure.diffs:
        calls = calls[: failure.diffs[0].call + 1]
    return f"for {', '.join(p.parameters)} in {calls}:"


_TARGETS = re.compile(r"([\w, ]+) = ")


def inputs_of(p: Parts, check: Check) -> Block:
    """The statements that make the arguments. Where one of them fails, without q, k and v, unless
    numbers are drawn after them, which are others then, or a function makes what is kept for calls
    of one shape."""
    lines = p.input_statements
    made = [*p.inputs.statements, *p.inputs.fresh]
    if not check.inputs_only or p.caches or not made:
        return lines
    if any(_DRAWN.search(line) for line in made):
        return lines
    kept: Block = []
    for line in reversed(lines):
        found = _TARGETS.match(line)
        names = "|".join(found[1].split(", ")) if found else "torch"
        used = re.search(rf"\b(?:{names})\b", "\n".join(kept))
        if line in made or used and found:
            kept.insert(0, line)
    return kept


def title(failure: Failure) -> str:
    """Kind, layer, and what is wrong, in two lines at most."""
    where = f" at {failure.layer.value}" if failure.layer is not None else ""
    head = f"{failure.kind.value}{where}"
    if failure.raised is not None:
        # Folders are those of the run that failed: only a file's name means anything elsewhere.
        message = re.sub(r"/(?:[^\s/]+/)+", "", said(failure.raised.message).split("\n")[0])
        # What generated code raises begins with where: a file that is named anew each time.
        message = re.sub(r"^operator\(\), \w+(?:\.main)?\.cpp:\d+, ", "", message)
        detail = f"{failure.raised.type.rpartition('.')[2]}: {message}".rstrip(": ")
    elif failure.diffs:
        detail = _difference(failure)
    else:
        detail = failure.signal or f"in {failure.phase.value}"
    refused = " (eager refuses it by design)" if EAGER_REFUSES in failure.evidence else ""
    line = " ".join(f"{head}{refused}: {detail}".split())
    told = textwrap.wrap(
        line, TITLE_WIDTH, max_lines=TITLE_LINES, placeholder=" …", break_on_hyphens=False
    )
    return "\n".join(told)


def _difference(failure: Failure) -> str:
    diff = failure.diffs[0]
    if diff.error is not None and diff.budget is not None:
        there = " there" if diff.block is not None else ""
        off = f"{diff.output} is off by {diff.error:.3g}"
        return f"{off}, rounding explains {diff.budget:.3g}{there}"
    return f"{diff.what} of {diff.output}: expected {diff.expected}, got {diff.actual}"
