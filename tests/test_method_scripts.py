"""Scripts of programs whose ranks share one attention: they are short, and say what is so."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from attnfuzz.generators.kernels.specs import Handwritten, Sdpa
from attnfuzz.generators.methods.registry import KINDS, plugin_for
from attnfuzz.generators.methods.specs import AllGather, Heads, Ring, Ulysses
from attnfuzz.generators.model.outcome import (
    WAITING,
    Diff,
    Failure,
    FailureKind,
    Layer,
    Phase,
    Raised,
)
from attnfuzz.generators.model.program import Input, Mesh, Program, Shape, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.shrink.candidates import candidates
from tests.support.method_programs import METHODS, program, reduced

ROOT = Path(__file__).parent.parent
SHORT = 40
LONGER = {"ring": 66, "context_parallel": 54}
"""How many lines the script of the simplest program of any method has at most that fails forward or
with a wrong gradient; more with a way back of its own, or a kernel that has to be registered."""


def wrong(output: str, budget: float = 1e-3) -> Failure:
    """A result that is off."""
    diff = Diff(output=output, what="value", expected="", actual="", error=1.0, budget=budget)
    return Failure(
        kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, layer=Layer.EAGER, diffs=(diff,)
    )


def parted(output: str) -> Failure:
    """A result that ranks should have alike."""
    diff = Diff(output=output, what="replicas", expected="the same on all ranks", actual="")
    return Failure(
        kind=FailureKind.METADATA_MISMATCH, phase=Phase.CHECK, layer=Layer.EAGER, diffs=(diff,)
    )


@pytest.mark.parametrize("trains", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", KINDS)
def test_scripts_are_short(kind: str, trains: bool) -> None:
    def fails(p: Program) -> bool:
        mesh = p.mesh
        same = mesh is not None and mesh.method == simplest and mesh.degree > 1
        return same and (p.training is not None or not trains)

    simplest = plugin_for(kind).spec_class()
    start = program(simplest, 2)
    if trains and start.training is None:
        assert kind == "flex_context_parallel"
        return
    text = repro(reduced(start, fails), wrong("dq" if trains else "out"))
    ast.parse(text)
    most = LONGER.get(kind, SHORT) if trains else SHORT
    assert len(text.splitlines()) <= most, text


def test_the_size_of_uneven_parts_together_is_said_once() -> None:
    shape = Shape(q_len=3, kv_len=3)
    parts = Program(shape=shape, mesh=Mesh(world_size=2, ranks="processes", method=AllGather()))
    assert not problems(parts)
    text = repro(parts, wrong("out"))
    assert text.count("torch.Size(") == 1 and text.count("shape=size, stride=stride") == 2
    values = repro(replace(parts, shape=replace(shape, v_head_dim=8)), wrong("out"))
    assert "def gather(x, dim):" in values


HANG = Failure(
    kind=FailureKind.HANG, phase=Phase.EAGER, layer=Layer.EAGER,
    raised=Raised(type="Hang", message=WAITING),
)  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_what_hangs_has_a_script_that_runs_it(name: str) -> None:
    every = (program(METHODS[name], 2), program(METHODS[name], 2, training=None))
    for one in every:
        for each in (one, *(made for made in candidates(one) if made.mesh is not None)):
            text = repro(each, HANG)
            *_, last = ast.parse(text).body
            assert isinstance(last, ast.Assign | ast.Expr), text
            assert ("autograd.grad(" in text) == (each.training is not None), text


VALUES = ("normal", "large", "tiny", "negative", "one_hot")
WRONG = {
    "value": Diff(output="", what="value", expected="", actual="", error=1.0, budget=1e-3),
    "dtype": Diff(output="", what="dtype", expected="torch.float32", actual="torch.float64"),
    "nondeterminism": Diff(output="", what="value", expected="", actual=""),
}


def scripts_of_one_rank() -> Iterator[tuple[str, str]]:
    """Scripts of failures that a right torch does not have, by what they are of."""
    for method in (AllGather(), Heads(), Ulysses(), Ring()):
        wrt: Any
        for number, wrt in enumerate(("q", "k", "v")):
            grouped = Shape(batch=2, q_heads=4, kv_heads=2, q_len=8, kv_len=8, head_dim=8)
            values: Any = VALUES[(number + len(method.kind)) % len(VALUES)]
            given, trained = Input(values=values), Training(wrt=(wrt,))
            of_one = program(
                method, 1, training=trained, shape=grouped, q=given, k=given,
                v=given, kernel=Handwritten(),
            )  # fmt: skip
            if isinstance(method, Ring):
                of_one = replace(of_one, kernel=Sdpa(backend="math", enable_gqa=True))
            if problems(of_one):
                continue
            for what, diff in WRONG.items():
                kind = {
                    "value": FailureKind.WRONG_RESULT, "dtype": FailureKind.METADATA_MISMATCH,
                    "nondeterminism": FailureKind.NONDETERMINISM,
                }[what]  # fmt: skip
                for output in ("out", f"d{wrt}"):
                    failure = Failure(
                        kind=kind, phase=Phase.CHECK, layer=Layer.EAGER,
                        diffs=(replace(diff, output=output),),
                    )  # fmt: skip
                    yield f"{method.kind}, {what} of {output}", repro(of_one, failure)


@pytest.mark.slow
def test_scripts_pass_where_torch_is_right() -> None:
    """Whatever is drawn, whichever gradient: each script runs to its end in one process."""
    ran = 0
    for of, text in scripts_of_one_rank():
        try:
            exec(compile(text, of, "exec"), {"__name__": "__main__"})
        except Exception as error:
            raise AssertionError(f"{of}:\n{text}") from error
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        ran += 1
    assert ran >= 36


def scripts_of_two_ranks() -> Iterator[tuple[str, str]]:
    """Scripts of what is right on a right torch, by method and result: of each method the output
    and a gradient, of a ring every gradient, with a mask too."""
    for number, (name, method) in enumerate(METHODS.items()):
        if name.startswith("flex") or "lse" in name or name == "ring-of-ulysses":
            continue
        every: list[Any] = ["q", "k", "v"]
        for wrt in [None, *(every if name == "ring" else [every[number % 3]])]:
            output = f"d{wrt}" if wrt else "out"
            trained = Training(wrt=(wrt,)) if wrt else None
            each = program(method, 2, training=trained)
            plain = replace(each, mask=None, kernel=unmasked(each))
            if not problems(plain):
                yield f"{name}-{output}", repro(plain, wrong(output))
            if name in ("ring", "context-parallel-balanced"):
                yield f"{name}-masked-{output}", repro(each, wrong(output))
            if name == "all-gather":
                yield f"{name}-replicas-{output}", repro(plain, parted(output))


def unmasked(each: Program) -> Any:
    """Its kernel, for no mask."""
    return replace(each.kernel, mask_form="bool") if isinstance(each.kernel, Sdpa) else each.kernel


@pytest.mark.slow
def test_scripts_of_two_ranks_tell_right_from_wrong(tmp_path: Path) -> None:
    """With two processes each script runs to its end, and fails where what it shows is wrong, or on
    one of them where that is what it shows."""
    scripts = dict(scripts_of_two_ranks())
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, str(ROOT / "tests/support/rank_of_scripts.py")]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        told = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for lines in told:
        ends = {(name, bad): said for name, bad, said in map(json.loads, lines.splitlines())}
        assert len(ends) == 2 * len(scripts) >= 50
        for (name, bad), said in ends.items():
            parts = "the same on ranks" if "replicas" in name else "off by"
            off = f"{name.rpartition('-')[2]} is {parts}"
            assert (f"AssertionError: {off}" in said) if bad else not said, (said, scripts[name])
