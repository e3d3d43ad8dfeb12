"""Which of Inductor's attention-fusion patterns drawn programs reach.

    PYTHONPATH=. python benchmarks/fusion.py [--profile graph] [--count 500] [--seed 1]

Each program is traced and goes through Inductor's passes over the joint graph, in this process,
with the torch that is installed here; no code is generated. A pattern counts for a program where
its replacement was made (`torch/_inductor/fx_passes/fuse_attention.py`).
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor.compile_fx import compile_fx
from torch._inductor.fx_passes import fuse_attention

from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.shards import stream

SHARD = 10
REPLACEMENT = re.compile(r"_sfdp_replacement_(\d+)")


def main(
    profile: Annotated[list[str] | None, typer.Option(help="Profiles to draw from.")] = None,
    count: Annotated[int, typer.Option(help="Programs of each profile.")] = 500,
    seed: Annotated[int, typer.Option(help="Of the programs.")] = 1,
    out: Annotated[Path | None, typer.Option("--json", help="Where to write the counts.")] = None,
) -> None:
    console = Console(width=100, highlight=False)
    warnings.filterwarnings("ignore")
    made: list[int] = []
    patterns = sorted(_watched(made))
    reached: Counter[int] = Counter()
    first: dict[int, str] = {}
    statuses: defaultdict[str, int] = defaultdict(int)
    for name in profile or ["graph"]:
        for program in islice(_compiled(seed, name), count):
            made.clear()
            statuses["traced" if _trace(program) else "not traced"] += 1
            for pattern in set(made):
                reached[pattern] += 1
                first.setdefault(pattern, program_id(program))
    table = Table("pattern", "programs", "the first of them")
    for pattern in patterns:
        table.add_row(str(pattern), str(reached[pattern]), first.get(pattern, ""))
    console.print(table)
    missing = [pattern for pattern in patterns if not reached[pattern]]
    console.print(
        f"torch {torch.__version__}, {', '.join(profile or ['graph'])}, seed {seed}: "
        f"{dict(statuses)}; {len(patterns) - len(missing)} of {len(patterns)} patterns reached, "
        f"not: {', '.join(map(str, missing)) or 'none'}"
    )
    if out is not None:
        out.write_text(json.dumps({str(number): reached[number] for number in patterns}))


def _watched(made: list[int]) -> Iterator[int]:
    """Makes each replacement note its number in `made`; gives the numbers. Patterns are registered
    when the first graph is compiled, after this."""
    for name, function in list(vars(fuse_attention).items()):
        if found := REPLACEMENT.fullmatch(name):
            number = int(found[1])
            setattr(fuse_attention, name, _noting(function, number, made))
            yield number


def _noting(function: Callable[..., Any], number: int, made: list[int]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        made.append(number)
        return function(*args, **kwargs)

    return noting


def _compiled(seed: int, profile: str) -> Iterator[Program]:
    """The profile's programs for Inductor, of one call, compiled plainly."""
    for program in stream(seed, profile=profile, shard_size=SHARD):
        if program.compile is None or program.compile.backend != "inductor":
            continue
        plain = replace(program, compile=Compile(), calls=(), transform="none", draws=0)
        if not problems(plain):
            yield plain


def _trace(program: Program) -> bool:
    """Whether the program was traced to its end."""
    names: dict[str, Any] = {}
    torch._dynamo.reset()
    try:
        exec(compile(source(replace(program, compile=None)), "<program>", "exec"), names)
        traced = torch.compile(names["attention"], backend=_without_code)
        names["run"](traced, names["inputs"]())
    except Exception:
        return False
    return True


def _without_code(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """Inductor up to the graphs that it would generate code for, which are run as they are."""

    def run(inner: torch.fx.GraphModule, _: Any, **__: Any) -> Any:
        return make_boxed_func(inner.forward)

    return compile_fx(graph, inputs, inner_compile=run)


if __name__ == "__main__":
    typer.run(main)
