"""Score modifications: float expression trees over `score`, the indices and captured tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.model.indices import STRICT, IntExpr, Table
from attnfuzz.generators.model.masks import Mask

FloatOp = Literal["+", "-", "*", "/", "minimum", "maximum"]
FloatUnary = Literal["tanh", "sigmoid", "sin", "cos", "abs", "neg", "relu", "square"]
Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]


@dataclass(frozen=True, kw_only=True)
class Score:
    """The incoming score, `scale * (q @ k.mT)`."""

    __pydantic_config__ = STRICT
    kind: Literal["score"] = "score"


@dataclass(frozen=True, kw_only=True)
class FloatConst:
    """A finite number of magnitude at most 1e6."""

    __pydantic_config__ = STRICT
    kind: Literal["float"] = "float"
    value: Finite


@dataclass(frozen=True, kw_only=True)
class FromIndex:
    """An integer expression used as a number (promotes with the other operand)."""

    __pydantic_config__ = STRICT
    kind: Literal["from_index"] = "from_index"
    index: IntExpr


@dataclass(frozen=True, kw_only=True)
class FloatBinary:
    """`left op right`; `/` divides by a nonzero constant only (see `generators.model.validity`)."""

    __pydantic_config__ = STRICT
    kind: Literal["binary"] = "binary"
    op: FloatOp
    left: ScoreMod
    right: ScoreMod


@dataclass(frozen=True, kw_only=True)
class FloatCall:
    """`torch.<function>(inner)`."""

    __pydantic_config__ = STRICT
    kind: Literal["call"] = "call"
    function: FloatUnary
    inner: ScoreMod


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """`step` applied `times` times, each using its argument x twice: "swish" is
    `x * sigmoid(x)`, "softsign" `x / (1 + |x|)`. A compiler that writes out every use of a value
    takes `2 ** times` as long."""

    __pydantic_config__ = STRICT
    kind: Literal["repeated"] = "repeated"
    step: Literal["swish", "softsign"] = "swish"
    times: Annotated[int, Field(ge=1, le=32)] = 2
    inner: ScoreMod


@dataclass(frozen=True, kw_only=True)
class Where:
    """`torch.where(condition, then, otherwise)`."""

    __pydantic_config__ = STRICT
    kind: Literal["where"] = "where"
    condition: Mask
    then: ScoreMod
    otherwise: ScoreMod


@dataclass(frozen=True, kw_only=True)
class FloatLookup:
    """A captured float table at the indices of its axes; `requires_grad` makes it a learnable bias
    (an argument of the attention function, with a gradient to compare)."""

    __pydantic_config__ = STRICT
    kind: Literal["lookup"] = "lookup"
    table: Table
    chained: bool = False
    requires_grad: bool = False


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """`inner + slope[h] * (kv_idx - q_idx)`, slope a captured float32 table `2**(-8 (h+1) / Hq)`,
    or that expression written out when not `captured`."""

    __pydantic_config__ = STRICT
    kind: Literal["alibi"] = "alibi"
    inner: ScoreMod
    captured: bool = True


@dataclass(frozen=True, kw_only=True)
class Softcap:
    """`cap * tanh(inner / cap)`."""

    __pydantic_config__ = STRICT
    kind: Literal["softcap"] = "softcap"
    inner: ScoreMod
    cap: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 20.0


@dataclass(frozen=True, kw_only=True)
class RelativeBias:
    """`inner + bias[(h,) q_idx - kv_idx + Lkv - 1]`, bias a captured float table
    `[(H,) Lq + Lkv - 1]`; T5's relative positions without buckets."""

    __pydantic_config__ = STRICT
    kind: Literal["relative_bias"] = "relative_bias"
    inner: ScoreMod
    per_head: bool = False
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


@dataclass(frozen=True, kw_only=True)
class MaskedScore:
    """`torch.where(mask, inner, -inf)`: a mask expressed as a score modification."""

    __pydantic_config__ = STRICT
    kind: Literal["masked"] = "masked"
    mask: Mask
    inner: ScoreMod


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A mask returned as the score itself (bool), or cast with `.to(torch.int32)` (`integer`):
    the mistake of passing a mask_mod as score_mod, which eager accepts."""

    __pydantic_config__ = STRICT
    kind: Literal["truth"] = "truth"
    mask: Mask
    integer: bool = False


ScoreMod = Annotated[
    Score | FloatConst | FromIndex | FloatBinary | FloatCall | Repeated | Where | FloatLookup
    | Alibi | Softcap | RelativeBias | MaskedScore | Truth,
    Field(discriminator="kind"),
]  # fmt: skip
