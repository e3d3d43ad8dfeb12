"""What torch's own CompilerBisector says of a script: which part of the compiler it takes."""

from __future__ import annotations

from attnfuzz.generators.model.compiling import AHEAD
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer, Phase
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.issue_script import IssueScript
from attnfuzz.generators.render.quoting import literal

DEADLINE_S = 600.0
"""Seconds that a bisection may take: it calls `test_fn` once for each back-end, and some ten times
for each part of Inductor."""

ONE_RUN_S = 120
"""Seconds that one run of a script that ends its process may take within it."""

ANSWER = "Bisection complete:"

_IN_PROCESS = f"""

import sys
import traceback

from torch._inductor.compiler_bisector import CompilerBisector


def judged() -> bool:
    try:
        return test_fn()
    except Exception:
        if CompilerBisector.get_subsystem() is None:
            raise
        traceback.print_exc()
        return False


print("{ANSWER}", CompilerBisector.do_bisect(judged), file=sys.stderr)
"""
"""With a part of a back-end switched off a program may fail in another way, as flex_attention does
without its lowering: then that part is not told to be the one that mends it."""

CROSSREF = "aot_eager_decomp_partition_crossref"
"""A system of the bisector's that cannot take flex_attention: its tensors have no rule for it."""

_OF_FLEX = f"""
import torch.nn.attention.flex_attention
from torch._inductor import compiler_bisector

compiler_bisector.BACKENDS.pop("{CROSSREF}", None)
torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
"""
"""Eager flex_attention is a torch.compile with a back-end of its own, which the bisector would take
for the one to be changed: as debugging has it, it is called as it is."""

_BY_PROCESSES = """\
import subprocess
import sys
from pathlib import Path

Path("issue.py").write_text({script})
bisect = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run"]
once = ["timeout", "{seconds}", sys.executable, "-I", "issue.py"]
sys.exit(subprocess.run([*bisect, *once], stdout=sys.stderr).returncode)
"""


def no_bisection(program: Program, failure: Failure) -> str | None:
    """Why the bisector cannot say anything of this failure; None where it can."""
    compiled = program.compile
    if compiled is None or failure.layer is Layer.EAGER or failure.phase in _BEFORE:
        return "it fails without torch.compile"
    if compiled.via in AHEAD:
        return "it is exported, and the bisector chooses the back-end of torch.compile"
    if program.mesh is not None and program.mesh.launched:
        return "it takes several processes, which would each bisect alone"
    if failure.kind is FailureKind.HANG:
        return "it hangs"
    return None


_BEFORE = (Phase.BUILD, Phase.REFERENCE, Phase.EAGER)


def bisecting(script: IssueScript, failure: Failure) -> str:
    """A script that bisects with `script`'s `test_fn`, in this process, or one process for each run
    where it ends its process; the answer is on stderr."""
    if failure.signal is not None:
        return _BY_PROCESSES.format(script=literal(script.text), seconds=ONE_RUN_S)
    first = _OF_FLEX if calls_flex(script) else ""
    return script.importable + "\n\n" + first + _IN_PROCESS


def calls_flex(script: IssueScript) -> bool:
    """Whether the script has flex_attention, so that the system `CROSSREF` is left out, which would
    be blamed for what it cannot do, and eager flex_attention is not compiled."""
    return "flex_attention(" in script.text


def answer(stderr: str) -> str | None:
    """The bisector's answer among what such a script wrote; None where it gave none."""
    lines = [line for line in stderr.splitlines() if line.startswith(ANSWER)]
    return lines[-1].removeprefix(ANSWER).strip() if lines else None
