"""Score modifications as text over `score`, the four indices and captured tables.

Score-free arguments of tanh, sigmoid, sin and cos are cast to the score's dtype first. Otherwise
the float64 reference would compute them in float32, whose last bit is nobody's to promise.
"""

from __future__ import annotations

from attnfuzz.generators.model import scores
from attnfuzz.generators.model.indices import Table
from attnfuzz.generators.model.scores import ScoreMod
from attnfuzz.generators.render.captures import Captures, fill
from attnfuzz.generators.render.expressions import (
    Expr,
    Kind,
    binary,
    call,
    method,
    number,
    promoted,
    unary,
)
from attnfuzz.generators.render.masks import KV, Q, boolean, integer
from attnfuzz.generators.render.sizes import Size, plus, total

_INEXACT = ("tanh", "sigmoid", "sin", "cos")
SCORE = Expr("score", kind="float", scored=True)
MINUS_INFINITY = number(float("-inf"))


def modified(node: ScoreMod, captures: Captures) -> Expr:
    """The result of a score modification, or of any node of one."""
    match node:
        case scores.Score():
            return SCORE
        case scores.FloatConst(value=constant):
            return number(constant)
        case scores.FromIndex(index=index):
            return integer(index, captures)
        case scores.FloatBinary(op=op, left=left, right=right):
            return arithmetic(op, modified(left, captures), modified(right, captures))
        case scores.FloatCall(function=function, inner=inner):
            return function_of(function, modified(inner, captures))
        case scores.Repeated(step=step, times=times, inner=inner):
            return repeated(step, captures.times or times, modified(inner, captures))
        case scores.Where(condition=condition, then=then, otherwise=otherwise):
            chosen = boolean(condition, captures)
            return _select(chosen, modified(then, captures), modified(otherwise, captures))
        case scores.FloatLookup(table=table, chained=chained, requires_grad=learnable):
            base = "bias" if learnable else "table"
            return captures.lookup(base, table, chained, learnable)
        case scores.Alibi(inner=inner, captured=captured):
            slope = _slope(captured, captures)
            distance = arithmetic("*", slope, binary(KV, "-", Q))
            return arithmetic("+", modified(inner, captures), distance)
        case scores.Softcap(inner=inner, cap=cap):
            squashed = arithmetic("/", modified(inner, captures), number(cap))
            return arithmetic("*", number(cap), function_of("tanh", squashed))
        case scores.RelativeBias():
            return arithmetic("+", modified(node.inner, captures), _relative(node, captures))
        case scores.MaskedScore(mask=mask, inner=inner):
            return _select(boolean(mask, captures), modified(inner, captures), MINUS_INFINITY)
        case scores.Truth(mask=mask, integer=as_integer):
            truth = boolean(mask, captures)
            return method(truth, "to", "torch.int32", kind="int") if as_integer else truth
    raise TypeError(f"no rendering for the score modification {node!r}")


def arithmetic(op: str, left: Expr, right: Expr) -> Expr:
    """`left op right`."""
    if op in ("minimum", "maximum"):
        return call(f"torch.{op}", left, right, kind=promoted(op, left, right))
    return binary(left, op, right)


def function_of(function: str, inner: Expr) -> Expr:
    """`torch.function(inner)`."""
    if function in _INEXACT:
        exact = inner if inner.scored else method(inner, "to", "score.dtype", kind="float")
        return call(f"torch.{function}", exact)
    if function == "neg":
        return unary("-", inner)
    return call(f"torch.{function}", inner, kind=inner.kind)


STEPS = {"swish": "x * torch.sigmoid(x)", "softsign": "x / (1 + x.abs())"}


def repeated(step: str, times: Size, inner: Expr) -> Expr:
    """`times` steps, one after the other."""
    first = inner if inner.scored else method(inner, "to", "score.dtype", kind="float")
    text = f"functools.reduce(lambda x, _: {STEPS[step]}, range({times}), {first.text})"
    return Expr(text, kind="float", scored=first.scored)


def _select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    kind: Kind = "bool" if then.kind == otherwise.kind == "bool" else "float"
    return call("torch.where", condition, then, otherwise, kind=kind)


def _slope(captured: bool, captures: Captures) -> Expr:
    """Head h's slope 2**(-8 (h + 1) / Hq) of ALiBi (Press et al., 2022)."""
    q_heads = captures.extents.h
    if captured:
        exponents = f"-8 * torch.arange(1, {plus(q_heads, 1)}) / {q_heads}"
        slopes = captures.add("slopes", f"torch.exp2({exponents})", dtype="float32")
        return Expr(f"{slopes}[h]", kind="float")
    return Expr(f"torch.exp2(-8 * (h + 1).to(score.dtype) / {q_heads})", kind="float")


def _relative(node: scores.RelativeBias, captures: Captures) -> Expr:
    extents = captures.extents
    count = total(extents.q_idx, extents.kv_idx)
    shape: tuple[Size, ...] = (max(count - 1, 0) if isinstance(count, int) else f"{count} - 1",)
    if node.per_head:
        shape = (extents.h, *shape)
    table = Table(axes=("h",), dtype=node.dtype, init="normal")
    name = captures.add("bias", fill(table, shape), dtype=node.dtype)
    head = "h, " if node.per_head else ""
    position: Size = "q_idx - kv_idx"
    if isinstance(captures.kv_len, int):
        position = plus(position, captures.kv_len - 1)
    else:
        position = f"{position} + {captures.kv_len} - 1"
    return Expr(f"{name}[{head}{position}]", kind="float")
