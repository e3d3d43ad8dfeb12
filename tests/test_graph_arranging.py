"""Graphs are tried as most of what is known is: stored as `[B, L, H, D]`, or SDPA alone."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.generators.kernels.graph.arranging import arranged
from attnfuzz.generators.kernels.graph.spec import Graph, MaskForm
from attnfuzz.generators.kernels.graph.steps.attention import Attend, Product, Softmax
from attnfuzz.generators.kernels.graph.steps.views import Permute, Unflatten
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.program import BSHD, Compile, Input, Program, Shape
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.shrink.candidates import candidates

HEADS = {"q": "Hq", "k": "Hkv", "v": "Hkv"}
VIEWED = [
    step
    for name, heads in HEADS.items()
    for step in (
        Unflatten(of=name, to=name, dim=2, parts=(heads, "D")),  # type: ignore[arg-type]
        Permute(of=name, to=name, dims=(0, 2, 1, 3)),
    )
]
ATTENTION = (
    Permute(of="k", to="key", dims=(0, 1, 3, 2)),
    Product(left="q", right="key", to="scores"),
    Softmax(of="scores", to="probs", dim=3),
    Product(left="probs", right="v", to="out"),
)
MERGED = Program(
    kernel=Graph(given="merged", steps=(*VIEWED, *ATTENTION)),
    shape=Shape(q_heads=2, kv_heads=2),
    compile=Compile(),
)


def test_it_is_tried_whatever_its_layout_was() -> None:
    permuted = [step for step in VIEWED if isinstance(step, Permute)]
    stored = replace(
        MERGED,
        kernel=Graph(given="blhd", steps=(*permuted, *ATTENTION)),
        q=Input(layout=BSHD), k=Input(layout=BSHD), v=Input(layout=BSHD),
    )  # fmt: skip
    assert not problems(MERGED) and not problems(stored)
    assert isinstance(MERGED.kernel, Graph) and stored in arranged(MERGED, MERGED.kernel)
    assert stored in candidates(MERGED)
    assert stored in candidates(replace(MERGED, q=stored.q, k=stored.k, v=stored.v))


def test_keys_that_are_laid_out_in_one_step_are_told_from_a_transposition() -> None:
    moves = [(0, 1, 3, 2), (0, 2, 1, 3), (0, 2, 3, 1), (2, 1, 0, 3)]
    far = [Permute(of="k", to="key", dims=dims).far for dims in moves]
    assert far == [False, False, True, True]


def test_sdpa_alone_has_a_mask_of_the_dtype_that_it_had() -> None:
    mask = MaskForm(form="additive", dtype="float32")
    steps = (Attend(q="q", k="k", v="v", to="out", mask="mask"),)
    program = Program(kernel=Graph(mask=mask, steps=steps), mask=Causal())
    alone = replace(program, kernel=Sdpa(mask_form="float", mask_dtype="float32"))
    assert not problems(alone) and alone in candidates(program)
