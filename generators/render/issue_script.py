"""The script of an issue: `test_fn() -> bool`, as torch's CompilerBisector takes it, and an assert.

Where numbers are wrong it compares as torch's maintainers ask of fuzzers: at default tolerances,
with a float64 reference, `fallback_random`, and the seed reset before eager and before compiled.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.outcome import EAGER_REFUSES, Failure, FailureKind
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.check import Check
from attnfuzz.generators.render.checks import CheckWriter, check_for
from attnfuzz.generators.render.devices import off_default_device
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
from attnfuzz.generators.render.quoting import docstring, literal
from attnfuzz.generators.render.repro import (
    TITLE_WIDTH,
    WHATEVER_THE_NUMBERS,
    calls_attention,
    drawn_on_cpu,
    inputs_of,
    is_judged,
    loop_head,
    title,
)
from attnfuzz.generators.render.scene import indented

Way = Literal["same", "flash_attn", "itself"]
"""How a script judges: by `torch._dynamo.utils.same`, as flash-attention's tests do, or by what
the failure itself says (an exception, an assertion with a measured budget)."""

COUNTED = (FailureKind.RECOMPILE_LIMIT, FailureKind.GRAPH_BREAK)
MAIN = 'if __name__ == "__main__":'
SAME = "from torch._dynamo.utils import same"
CONFIG = "import torch._inductor.config"


@dataclass(frozen=True)
class IssueScript:
    """`text` needs torch (and the kernel's package) alone; its last line raises AssertionError with
    `message` where the failure shows, unless the process dies before."""

    text: str
    way: Way
    message: str

    @property
    def importable(self) -> str:
        """What defines `test_fn`, without what calls it."""
        return self.text.rpartition(f"\n\n{MAIN}\n")[0]


def ways(program: Program, failure: Failure) -> tuple[Way, ...]:
    """How scripts can judge this failure, the way that its receiver asks for first."""
    writer = CheckWriter(parts(program), failure)
    if writer.name is None:
        return ("itself",)
    first: Way = plugin_of(program).judged_in_issues_by
    return (first,) if failure.signal is not None else (first, "itself")


def issue_script(
    program: Program,
    failure: Failure,
    way: Way,
    *,
    device: str = "cpu",
    all_ranks: bool = False,
    where: str = "",
) -> IssueScript:
    """The script that shows `failure` of `program`, judged in that one of `ways`; `device`,
    `all_ranks` and `where` are as in `generators.render.repro`."""
    times = "times" if failure.kind is FailureKind.COMPILE_TIME else ""
    p = parts(program, device, device, times, all_ranks, is_judged(failure))
    writer = CheckWriter(p, failure)
    if way == "itself":
        check, message = _itself(p, failure), _raised(failure)
    else:
        check, message = _compared(writer, way)
    if check.compiled and way == "same":
        p.inputs.imports += [CONFIG]
    p.inputs.imports += [SAME] if way == "same" else []
    kept, made = _made_in_test(p.compiled if check.compiled else [])
    blocks: list[Block] = [] if device == "cpu" else [[f'torch.set_default_device("{device}")']]
    if check.compiled and way == "same":
        blocks.append(["torch._inductor.config.fallback_random = True"])
    blocks += [check.first] if check.first else []
    if program.dirty_memory:
        blocks.append(DIRTY_MEMORY if device == "cpu" else DIRTY_DEVICE_MEMORY)
    blocks.append(global_modes(program))
    blocks += [*p.mods, *p.cached_mods, *p.rewriting]
    if not check.inputs_only:
        blocks += [*p.rope, *p.attention] if check.compiled or calls_attention(check) else p.rope
        blocks += p.undropped
        blocks += p.reference if check.reference else []
        blocks += [p.run.function(), *runs(program, check.compiled)] if check.run else []
        blocks += [*check.functions, *kept]
    test = _test(p, check, failure, way, made)
    modeless = device != "cpu" and p.plugin.has_fast_path
    blocks.append(off_default_device(test, device) if modeless else test)
    blocks.append([MAIN, f"    assert test_fn(), {literal(message)}"])
    if device != "cpu" and failure.kind not in WHATEVER_THE_NUMBERS:
        blocks = [[drawn_on_cpu(line, device) for line in block] for block in blocks]
    head = "\n\n".join(filter(None, [title(failure), textwrap.fill(where, TITLE_WIDTH)]))
    head += launched(p.scene)
    return IssueScript(f"{docstring(head)}\n\n{assemble(blocks, p)}", way, message)


def _made_in_test(compiled: list[Block]) -> tuple[list[Block], Block]:
    """The functions among the blocks that define `compiled`, and the statements that compile, which
    go into `test_fn`: the bisector chooses the back-end when `torch.compile` is called."""
    functions = [block for block in compiled if block[0].startswith(("def ", "class "))]
    statements = [line for block in compiled if block not in functions for line in block]
    text = "\n".join(line for block in functions for line in block)
    names = [line.partition(" = ")[0] for line in statements]
    shared = [name for name in names if re.search(rf"\b{name}\b", text)]
    return functions, [*([f"global {', '.join(shared)}"] if shared else []), *statements]


def _test(p: Parts, check: Check, failure: Failure, way: Way, made: Block) -> Block:
    """The function that says whether all is well."""
    lines = [line for line in made if line.startswith("global ")]
    if check.compiled:
        lines.append("torch._dynamo.reset()")
        if failure.kind in COUNTED:
            lines.append("torch._dynamo.utils.counters.clear()")
    lines += [line for line in made if not line.startswith("global ")]
    inputs, body = inputs_of(p, check), [*check.statements, *check.last]
    if p.parameters:
        loop = [loop_head(p, failure), *indented([*inputs, *check.statements])]
        inputs, body = [], [*loop, *check.last]
    elif check.inputs_only:
        inputs, body = [], [*inputs, *body]
    lines += inputs
    if way != "itself":
        lines += body
    elif failure.kind is FailureKind.HANG or failure.signal is not None:
        lines += [*body, "return True"]
    else:
        caught = ["except Exception:", "    traceback.print_exc()", "    return False"]
        lines += ["try:", *indented(body), *caught, "return True"]
    return ["def test_fn() -> bool:", *indented(lines)]


def _itself(p: Parts, failure: Failure) -> Check:
    """What the failure itself says, with the seed reset before each that is compared."""
    check = check_for(p, failure)
    if failure.kind is FailureKind.METADATA_MISMATCH and failure.diffs and check.compiled:
        check.statements = [_seed(p), *check.statements]
        check.last = [_seed(p), *check.last]
    return check


def _raised(failure: Failure) -> str:
    if failure.raised is not None:
        return f"raised {failure.raised.type.rpartition('.')[2]}, see above"
    return "not as it should be, see above"


def _seed(p: Parts) -> str:
    return f"torch.manual_seed({'seed' if p.program.draws else p.program.seed})"


def _compared(writer: CheckWriter, way: Way) -> tuple[Check, str]:
    """The statements that compare, and what the assertion says."""
    p, name = writer.parts, writer.name
    assert name is not None
    check = writer.start()
    check.reference = True
    written = p.run.loop is not None and p.run.loop.written
    again = inputs_of(p, check) if written else []
    actual = f"actual = {writer.value(writer.function, name)}"
    expected = f"expected = {writer.value('reference', name, double=True)}"
    if writer.compiled and EAGER_REFUSES not in writer.failure.evidence:
        first, other = "eager", "eager attention's"
        eager = f"eager = {writer.value('attention', name)}"
        check.statements = [_seed(p), eager, *again, _seed(p), actual]
    else:
        first, other = "plain", "that of plain operations"
        plain = f"plain = {writer.value('reference', name)}.to(actual.dtype)"
        seed = [_seed(p)] if writer.compiled else []
        check.statements = [*seed, actual, *again, plain]
    check.statements += [*again, expected]
    compared = ["actual", first, "expected"]
    if writer.may_be_nonfinite():
        check.last.append(f"finite = expected.isfinite() & {first}.isfinite()")
        compared = [f"{one}[finite]" for one in compared]
    subject = f"the compiled {name}" if writer.compiled else name
    if way == "same":
        mine, theirs, double = compared
        check.last.append(f"return same({theirs}, {mine}, fp64_ref={double})")
        return check, f"{subject} is not {other}, by torch._dynamo.utils.same"
    mine, theirs, double = compared
    check.last += [
        f"rounded = {double}.to(actual.dtype)",
        "floor = 2 * (rounded + 0.3 - 0.3 - rounded).abs().max().item()",
        f"error = ({mine} - {double}).abs().max().item()",
        f"error_of_torch = ({theirs} - {double}).abs().max().item()",
        "return error <= 2 * error_of_torch + floor",
    ]
    return check, f"{subject} is off by more than twice what low-precision torch is"
