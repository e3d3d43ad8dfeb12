"""The preload file of `reach.py`: notes what lines run, what dynamo traces, which patterns fire.

It is copied into a folder that has `coverage.ini` beside it. At the end of each process of a
program coverage.py writes its data where that says, and `noted-<pid>` is written beside it, JSON:
{"traced": {path: [line]}, "fired": [name of a registered pattern]}.

Dynamo interprets the bytecode of what it compiles, itself and without executing it, so no trace
function sees that.
"""

import json
import os
from pathlib import Path
from typing import Any, NoReturn

import coverage
import torch._dynamo.symbolic_convert
import torch._inductor.pattern_matcher

HERE = Path(__file__).resolve().parent

traced: dict[str, set[int]] = {}
fired: set[str] = set()


def note_what_dynamo_traces() -> None:
    """Has dynamo's interpreter note each line of torch that it comes to."""
    interpreter = torch._dynamo.symbolic_convert.InstructionTranslatorBase
    starts_line = interpreter.starts_line

    def noting(self: Any, lineno: int) -> None:
        path = self.f_code.co_filename
        if "/torch/" in path:
            traced.setdefault(path, set()).add(lineno)
        starts_line(self, lineno)

    interpreter.starts_line = noting


def note_which_patterns_fire() -> None:
    """Has Inductor's pattern matcher note the registered name of each replacement it makes."""
    entry = torch._inductor.pattern_matcher.ReplacementPatternEntry
    apply = entry.apply

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name := getattr(self, "pattern_name", None):
            fired.add(name)
        return apply(self, *args, **kwargs)

    entry.apply = noting


def write_notes_at_exit() -> None:
    """Every process of a program ends by `os._exit`, unless it is killed."""
    leave = os._exit

    def noting(status: int) -> NoReturn:
        lines = {os.path.realpath(path): sorted(lines) for path, lines in traced.items()}
        noted = json.dumps({"traced": lines, "fired": sorted(fired)})
        (HERE / f"noted-{os.getpid()}").write_text(noted)
        leave(status)

    os._exit = noting


note_what_dynamo_traces()
note_which_patterns_fire()
write_notes_at_exit()
coverage.Coverage(config_file=str(HERE / "coverage.ini")).start()
