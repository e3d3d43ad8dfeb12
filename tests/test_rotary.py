"""Rotary embeddings: what they compute, where they fit, and what minimization makes of them."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.plainer import alone
from attnfuzz.generators.kernels.graph.steps.attention import Attend
from attnfuzz.generators.kernels.graph.steps.rotary import Rotary
from attnfuzz.generators.kernels.specs import Graph
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.program import Call, Program, Shape
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.shrink.candidates import candidates

FORMS: tuple[Any, ...] = ("halves", "interleaved", "complex")
SHAPE = Shape(batch=2, q_heads=2, kv_heads=2, q_len=5, kv_len=7, head_dim=8)
ATTEND = Attend(q="q", k="k", v="v", to="out")
WRITTEN = """\
def attention(q, k, v, inv_freq):
    angles = torch.arange(7, device=k.device)[:, None] * inv_freq
    cos, sin = angles.cos(), angles.sin()
    x1, x2 = k.chunk(2, dim=-1)
    k = torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
    out = F.scaled_dot_product_attention(q, k, v)
    return out
"""


def rotated(form: Any = "halves", **parts: Any) -> Program:
    """SDPA of q and of k with rotary embeddings."""
    steps = (Rotary(of="k", to="k", form=form), ATTEND)
    return replace(Program(kernel=Graph(steps=steps), shape=SHAPE), **parts)


def module_of(program: Program) -> ModuleType:
    assert problems(program) == []
    module = ModuleType("rendered_program")
    exec(compile(source(program), "<program>", "exec"), module.__dict__)
    return module


def turned(x: torch.Tensor, form: str) -> torch.Tensor:
    """The definition, pair by pair, for `x`, `[.., L, D]`."""
    found, dim = x.clone(), x.shape[-1]
    for position in range(x.shape[-2]):
        for i in range(dim // 2):
            one, two = (i, i + dim // 2) if form == "halves" else (2 * i, 2 * i + 1)
            angle = torch.tensor(position * 10000.0 ** (-2 * i / dim), dtype=torch.float64)
            a, b = x[..., position, one], x[..., position, two]
            found[..., position, one] = a * angle.cos() - b * angle.sin()
            found[..., position, two] = a * angle.sin() + b * angle.cos()
    return found


def test_it_is_written_as_models_write_it() -> None:
    program = rotated()
    assert WRITTEN in source(program)
    assert load_program(dump_program(program)) == program


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_it_means_its_definition(form: str, dtype: Any) -> None:
    inputs = {name: replace(getattr(Program(), name), dtype=dtype) for name in ("q", "k", "v")}
    module = module_of(rotated(form, **inputs))
    q, k, v, inv_freq = module.inputs()
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.double(), turned(k.double(), form), v.double()
    )
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for function in (module.attention, module.reference):
        given = (q, k, v) if function is module.attention else (q.double(), k.double(), v.double())
        out = function(*given, inv_freq)
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def test_further_calls_have_positions_of_their_own() -> None:
    program = rotated(calls=(Call(batch=2, q_len=5, kv_len=9),))
    assert problems(program) == []
    assert "torch.arange(Lkv, device=k.device)" in source(program)


@pytest.mark.parametrize(
    ("shape", "dim", "key"),
    [
        (replace(SHAPE, head_dim=7), 2, "kernel.steps[0].of"),
        (SHAPE, 3, "kernel.steps[0].dim"),
        (SHAPE, 4, "kernel.steps[0].dim"),
    ],
)
def test_what_has_no_pairs_or_positions_is_a_problem(shape: Shape, dim: int, key: str) -> None:
    kernel = Graph(steps=(Rotary(of="k", to="k", dim=dim), ATTEND))
    assert [problem.key for problem in problems(Program(kernel=kernel, shape=shape))] == [key]


def test_keys_of_all_slots_have_other_positions_than_the_part() -> None:
    _, masked = alone(Decode())
    assert isinstance(masked, Graph)
    steps = list(masked.body)
    for at, key in ((0, None), (1, "kernel.steps[1].of")):
        name = "k" if at == 0 else "keys"
        kernel = masked.with_steps([*steps[:at], Rotary(of=name, to=name), *steps[at:]])
        found = [problem.key for problem in problems(Program(kernel=kernel))]
        assert found == ([key] if key else [])


def test_minimization_takes_it_away() -> None:
    bare = Graph(steps=(ATTEND,))
    assert bare in [program.kernel for program in candidates(rotated())]
