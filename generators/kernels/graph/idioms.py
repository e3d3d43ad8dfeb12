"""Attention as well-known models write it, step by step: what Inductor's fusion looks for.

Each line of `IDIOMS` is the attention of some model, as `fuse_attention.py` among Inductor's passes
has a pattern for it; `benchmarks/fusion.py` says which patterns they reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from attnfuzz.generators.kernels.graph.building import Builder
from attnfuzz.generators.kernels.graph.steps.arithmetic import Cast, IsZero, Scale
from attnfuzz.generators.kernels.graph.steps.attention import Attend, MaskScores, Product, Softmax
from attnfuzz.generators.kernels.graph.steps.views import ExpandAs, Flatten, Permute, Unflatten

Masking = Literal["none", "add", "padding", "where", "where_add"]


@dataclass(frozen=True)
class Idiom:
    """How one model writes it: `scale` of the scores or of the query, by a form of `Scale`;
    `permuted`: q, k and v come as `[B, L, H, D]`; `keys`: k and v are returned too; `flat`: the
    products are of three dimensions; `back`: scores that a mask made wider go back to q's dtype;
    `fused`: SDPA itself, with a Dv for which it has no fused kernel and is decomposed; `patterns`:
    how many it reaches, by its dtype, mask and batch."""

    scale: Literal["*", "mul", "/", "div", "div_full", "none"]
    masking: Masking = "none"
    permuted: bool = False
    of_query: bool = False
    float32: bool = False
    keys: bool = False
    flat: bool = False
    back: bool = False
    fused: bool = False
    patterns: int = 1


IDIOMS = (
    Idiom("div"),
    Idiom("mul"),
    Idiom("/", "add"),
    Idiom("/", permuted=True, float32=True, patterns=3),
    Idiom("/", permuted=True, of_query=True, float32=True, patterns=2),
    Idiom("div", permuted=True, patterns=2),
    Idiom("div", "add", permuted=True, patterns=3),  # BERT
    Idiom("div", "padding", permuted=True, patterns=2),  # DistilBERT
    Idiom("div", "padding", permuted=True, of_query=True, patterns=2),
    Idiom("div_full", "where", permuted=True, keys=True),  # GPT-2
    Idiom("div_full", "where_add"),
    Idiom("none", "add", permuted=True, float32=True),  # T5
    Idiom("none", "add", permuted=True, float32=True, keys=True),
    Idiom("none", permuted=True, float32=True, keys=True),
    Idiom("none", "add", permuted=True, float32=True, back=True),
    Idiom("none", "add", permuted=True, float32=True, keys=True, back=True),
    Idiom("none", "add", flat=True),  # mBART
    Idiom("none", flat=True),
    Idiom("none", permuted=True, fused=True),
    Idiom("none", "add", permuted=True, fused=True),
)


def write(builder: Builder, idiom: Idiom, select: Any) -> tuple[str, ...]:
    """The steps of the idiom, of q, k and v as they are given. Gives the names of what is returned.
    `select` is how scores under a padding mask are written."""
    b = builder
    if idiom.permuted:
        for name in ("q", "k", "v"):
            to = {"k": "keys", "v": "values"}.get(name, name) if idiom.keys else name
            b.add(Permute(of=name, to=to, dims=(0, 2, 1, 3)))
    key, value = ("keys", "values") if idiom.keys else ("k", "v")
    if idiom.fused:
        b.add(
            Attend(q="q", k=key, v=value, to="out", mask="mask" if idiom.masking == "add" else None)
        )
        return ("out",)
    if idiom.of_query:
        b.add(_scaled("q", "q", idiom))
    if idiom.flat:
        for name in ("q", "k", "v"):
            b.add(Flatten(of=name, to=name, first=0, last=1, form="reshape"))
    last = (0, 2, 1) if idiom.flat else (0, 1, 3, 2)
    b.add(Permute(of=key, to="key", dims=last, form="transpose"))
    b.add(Product(left="q", right="key", to="scores", form="bmm" if idiom.flat else "matmul"))
    if not idiom.of_query and idiom.scale != "none":
        b.add(_scaled("scores", "scores", idiom))
    if idiom.flat:
        b.add(Unflatten(of="scores", to="scores", dim=0, parts=("B", "Hq"), form="view"))
    _masked(b, idiom, select)
    if idiom.back and b.value("scores").dtype != b.value("q").dtype:
        b.add(Cast(of="scores", to="scores", like="q"))
    if idiom.flat:
        b.add(Flatten(of="scores", to="scores", first=0, last=1, form="reshape"))
    float32 = idiom.float32 and b.value("scores").dtype != "float64"
    dim = 2 if idiom.flat else 3
    b.add(Softmax(of="scores", to="probs", dim=dim, form="method", float32=float32))
    if b.value("probs").dtype != b.value(value).dtype:
        b.add(Cast(of="probs", to="probs", like=value))
    form: Any = "bmm" if idiom.flat else "matmul"
    b.add(Product(left="probs", right=value, to="out", form=form))
    if idiom.flat:
        b.add(Unflatten(of="out", to="out", dim=0, parts=("B", "Hq"), form="view"))
    return ("out", "keys", "values") if idiom.keys else ("out",)


def _scaled(of: str, to: str, idiom: Idiom) -> Scale:
    form: Any = idiom.scale
    return Scale(of=of, to=to, form=form)


def _masked(b: Builder, idiom: Idiom, select: Any) -> None:
    match idiom.masking:
        case "add":
            b.add(MaskScores(of="scores", mask="mask", to="scores", form="add"))
        case "padding":
            b.add(IsZero(of="mask", to="mask2"))
            b.add(Unflatten(of="mask2", to="mask2", dim=1, parts=("1", "1", "Lkv"), form="view"))
            b.add(ExpandAs(of="mask2", to="mask2", like="scores"))
            b.add(MaskScores(of="scores", mask="mask2", to="scores", form="hidden", fill=select))
        case "where" | "where_add":
            seen = "mask"
            if idiom.masking == "where_add":
                b.add(IsZero(of="mask", to="mask2"))
                seen = "mask2"
            b.add(
                MaskScores(of="scores", mask=seen, to="scores", form="where", fill="finfo_tensor")
            )
            if idiom.masking == "where_add":
                b.add(MaskScores(of="scores", mask="mask", to="scores", form="add"))
