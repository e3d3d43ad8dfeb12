"""The steps that attention is made of: products, masks, softmax, and the fused function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import (
    Dim,
    Name,
    Scope,
    Unfit,
    Value,
    broadcast,
    depends,
    dimension,
    made_of,
    promoted,
    same,
)
from attnfuzz.generators.render.sizes import Size, commas, inverse_root

Equation = Literal[
    "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "bqhd,bkhd->bqhk", "bhkd,bhqd->bhkq",
    "bhqk,bhkd->bhqd", "bhqk,bkhd->bqhd", "bqhk,bkhd->bqhd", "bhkq,bhkd->bhqd",
    "bgrqd,bgkd->bgrqk", "bgrqk,bgkd->bgrqd",
]  # fmt: skip


def _products_take(left: Value, right: Value, key: str) -> None:
    if left.dtype != right.dtype:
        raise Unfit(key, f"expected one dtype, got {left.dtype} and {right.dtype}")
    for operand, value in (("left", left), ("right", right)):
        if value.masked:  # a sum of the least numbers overflows, or does not, by its order
            raise Unfit(operand, "expected a softmax between a mask and a product")


@dataclass(frozen=True, kw_only=True)
class Product(Step):
    """A matrix product of the last two dimensions; those before are broadcast, or alike and one for
    `bmm` and `baddbmm`."""

    kind: Literal["product"] = "product"
    left: Name
    right: Name
    to: Name
    form: Literal["matmul", "@", "method", "bmm", "baddbmm"] = "matmul"
    operands: ClassVar[tuple[str, ...]] = ("left", "right")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        left, right = scope.tensor(self.left, "left"), scope.tensor(self.right, "right")
        if left.rank < 2 or right.rank < 2:
            raise Unfit("right", "expected matrices")
        _products_take(left, right, "right")
        if not same(left.shape[-1], right.shape[-2]):
            raise Unfit("right", f"expected {left.shape[-1]} rows, got {right.shape[-2]}")
        before = broadcast(left.shaped(left.shape[:-2]), right.shaped(right.shape[:-2]), "right")
        stacks = left.rank == right.rank == 3 and same(left.shape[0], right.shape[0])
        if self.form in ("bmm", "baddbmm") and not stacks:
            raise Unfit("form", "expected another: they are not two equal stacks of matrices")
        shape = (*before, left.shape[-2], right.shape[-1])
        return (made_of(shape, left.dtype, left, right),)

    def text(self, scope: Scope) -> list[str]:
        left, right = self.left, self.right
        match self.form:
            case "@":
                text = f"{left} @ {right}"
            case "method":
                text = f"{left}.matmul({right})"
            case "baddbmm":
                zeros = commas(self.values(scope)[0].shape)
                start = f"torch.zeros({zeros}{scope.like(left)})"
                text = f"torch.baddbmm({start}, {left}, {right})"
            case _:
                text = f"torch.{self.form}({left}, {right})"
        return [f"{self.to} = {text}"]

    def plain(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.left} @ {self.right}"]


@dataclass(frozen=True, kw_only=True)
class Einsum(Step):
    """A product of both by `equation`: no dimension has to be moved for it."""

    kind: Literal["einsum"] = "einsum"
    left: Name
    right: Name
    to: Name
    equation: Equation = "bhqd,bhkd->bhqk"
    operands: ClassVar[tuple[str, ...]] = ("left", "right")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        left, right = scope.tensor(self.left, "left"), scope.tensor(self.right, "right")
        _products_take(left, right, "right")
        operands, result = self.equation.split("->")
        sizes: dict[str, Size] = {}
        for letters, value in zip(operands.split(","), (left, right), strict=True):
            if len(letters) != value.rank:
                raise Unfit("equation", f"expected one for {value.rank} dimensions")
            for letter, size in zip(letters, value.shape, strict=True):
                if not same(sizes.setdefault(letter, size), size):
                    raise Unfit("equation", f"expected {letter} to be {sizes[letter]}, got {size}")
        shape = tuple(sizes[letter] for letter in result)
        return (made_of(shape, left.dtype, left, right),)

    def text(self, scope: Scope) -> list[str]:
        return [f'{self.to} = torch.einsum("{self.equation}", {self.left}, {self.right})']


@dataclass(frozen=True, kw_only=True)
class MaskScores(Step):
    """Scores with a mask: a float one is added; of a bool one, scores are replaced where it is
    false, where it is true (`hidden`), or where it is 0 (`eq_zero`, of any dtype)."""

    kind: Literal["mask_scores"] = "mask_scores"
    of: Name
    mask: Name
    to: Name
    form: Literal["add", "masked_fill", "where", "hidden", "eq_zero"] = "masked_fill"
    fill: Literal["-inf", "finfo_min", "tensor", "finfo_tensor"] = "-inf"
    operands: ClassVar[tuple[str, ...]] = ("of", "mask")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value, mask = scope.tensor(self.of, "of"), scope.get(self.mask, "mask")
        if self.form == "add" and not mask.floating:
            raise Unfit("form", f"expected another: the mask is {mask.dtype}")
        if self.form in ("masked_fill", "where", "hidden") and mask.dtype != "bool":
            raise Unfit("form", f"expected add or eq_zero: the mask is {mask.dtype}")
        shape = broadcast(value, mask, "mask")
        if any(not same(one, other) for one, other in zip(shape, value.shape, strict=False)):
            raise Unfit("mask", f"expected one that broadcasts to {value.shape}, got {mask.shape}")
        if len(shape) != value.rank:
            raise Unfit("mask", f"expected at most {value.rank} dimensions, got {mask.rank}")
        dtype = promoted(value, mask) if self.form == "add" else value.dtype
        of = depends(value, mask) if self.form == "add" else value.of
        return (Value(shape, dtype, False, of, masked=True),)

    def text(self, scope: Scope) -> list[str]:
        if self.form == "add":
            return [f"{self.to} = {self.of} + {self.mask}"]
        least, like = f"torch.finfo({self.of}.dtype).min", scope.like(self.of)
        fill = {
            "-inf": 'float("-inf")',
            "finfo_min": least,
            "tensor": f'torch.full((), float("-inf"){like})',
            "finfo_tensor": f"torch.full((), {least}{like})",
        }[self.fill]
        if self.form == "where":
            return [f"{self.to} = torch.where({self.mask}, {self.of}, {fill})"]
        hidden = {"eq_zero": f"{self.mask} == 0", "hidden": self.mask}.get(
            self.form, f"~{self.mask}"
        )
        return [f"{self.to} = {self.of}.masked_fill({hidden}, {fill})"]


@dataclass(frozen=True, kw_only=True)
class Softmax(Step):
    """A softmax over dimension `dim`, in float32 if it is said so."""

    kind: Literal["softmax"] = "softmax"
    of: Name
    to: Name
    dim: Dim
    form: Literal["functional", "method", "module", "exp_sum", "log_softmax"] = "functional"
    float32: bool = False

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.tensor(self.of, "of")
        size = dimension(value, self.dim, "dim")
        if size == 0 and self.form == "exp_sum":
            raise Unfit("form", "expected another: exp_sum takes a maximum")
        if self.float32 and (value.dtype == "float64" or self.form in ("exp_sum", "module")):
            raise Unfit("float32", "expected false for float64, exp_sum and module")
        dtype = "float32" if self.float32 else value.dtype
        return (replace(value, contiguous=False, dtype=dtype, masked=False),)

    def text(self, scope: Scope) -> list[str]:
        of, dim = self.of, self.dim - scope.values[self.of].rank
        dtype = ", dtype=torch.float32" if self.float32 else ""
        match self.form:
            case "functional":
                text = f"F.softmax({of}, dim={dim}{dtype})"
            case "method":
                text = f"{of}.softmax(dim={dim}{dtype})"
            case "module":
                text = f"torch.nn.Softmax(dim={dim})({of})"
            case "log_softmax":
                text = f"{of}.log_softmax(dim={dim}{dtype}).exp()"
            case _:
                text = f"torch.exp({of} - {of}.amax(dim={dim}, keepdim=True))"
                summed = f"{self.to} = {self.to} / {self.to}.sum(dim={dim}, keepdim=True)"
                return [f"{self.to} = {text}", summed]
        return [f"{self.to} = {text}"]

    def plain(self, scope: Scope) -> list[str]:
        dim = self.dim - scope.values[self.of].rank
        return [f"{self.to} = torch.softmax({self.of}, dim={dim})"]


@dataclass(frozen=True, kw_only=True)
class LogSumExp(Step):
    """The log-sum-exp over the last dimension, which stays with extent 1."""

    kind: Literal["logsumexp"] = "logsumexp"
    of: Name
    to: Name

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value = scope.tensor(self.of, "of")
        if not value.rank or value.shape[-1] == 0:
            raise Unfit("of", "expected a last dimension that is not empty")
        return (value.shaped((*value.shape[:-1], 1)),)

    def text(self, scope: Scope) -> list[str]:
        return [f"{self.to} = {self.of}.logsumexp(dim=-1, keepdim=True)"]


@dataclass(frozen=True, kw_only=True)
class ZeroEmptyRows(Step):
    """Attention `[…, Lq, Dv]` with 0 for the queries that saw no key, which are NaN: those whose
    log-sum-exp `[…, Lq, 1]` is -inf."""

    kind: Literal["zero_empty_rows"] = "zero_empty_rows"
    of: Name
    lse: Name
    to: Name
    operands: ClassVar[tuple[str, ...]] = ("of", "lse")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        value, lse = scope.tensor(self.of, "of"), scope.tensor(self.lse, "lse")
        if not value.rank or lse.shape != (*value.shape[:-1], 1):
            raise Unfit("lse", f"expected {(*value.shape[:-1], 1)}, got {lse.shape}")
        return (replace(value, contiguous=False),)

    def text(self, scope: Scope) -> list[str]:
        return [f'{self.to} = torch.where({self.lse} == float("-inf"), 0.0, {self.of})']


@dataclass(frozen=True, kw_only=True)
class Merge(Step):
    """Attention over all keys, `[…, Lq, Dv]`, of that over two parts of them, each with its
    log-sum-exp `[…, Lq, 1]`: their mean, weighted by the sums of exponentials."""

    kind: Literal["merge"] = "merge"
    of: Annotated[tuple[Name, ...], Field(min_length=2, max_length=2)]
    lse: Annotated[tuple[Name, ...], Field(min_length=2, max_length=2)]
    to: Name
    form: Literal["sigmoid", "logaddexp"] = "logaddexp"
    operands: ClassVar[tuple[str, ...]] = ("of", "lse")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        if len(self.of) != 2 or len(self.lse) != 2:
            raise Unfit("of", "expected two parts")
        one, other = (scope.tensor(name, "of") for name in self.of)
        lse, lse2 = (scope.tensor(name, "lse") for name in self.lse)
        if one.shape != other.shape or lse.shape != lse2.shape:
            raise Unfit("of", "expected both parts to be alike")
        if lse.shape != (*one.shape[:-1], 1):
            raise Unfit("lse", f"expected {(*one.shape[:-1], 1)}, got {lse.shape}")
        of = depends(one, other, lse, lse2)
        return (Value(one.shape, promoted(one, other, lse, lse2), False, of),)

    def text(self, scope: Scope) -> list[str]:
        one, other = self.of
        lse, lse2 = self.lse
        if self.form == "sigmoid":
            return [f"{self.to} = {one} + ({other} - {one}) * torch.sigmoid({lse2} - {lse})"]
        return [
            f"total = torch.logaddexp({lse}, {lse2})",
            f"{self.to} = {one} * ({lse} - total).exp() + {other} * ({lse2} - total).exp()",
        ]


@dataclass(frozen=True, kw_only=True)
class Attend(Step):
    """`F.scaled_dot_product_attention` of `[…, H, Lq, D]`, `[…, H, Lkv, D]` and `[…, H, Lkv, Dv]`;
    where the heads of `[B, H, L, D]` differ, with `enable_gqa`."""

    kind: Literal["attend"] = "attend"
    q: Name
    k: Name
    v: Name
    to: Name
    mask: Name | None = None
    causal: bool = False
    scale: Annotated[float, Field(allow_inf_nan=False, gt=0, le=1e4)] | None = None
    operands: ClassVar[tuple[str, ...]] = ("q", "k", "v", "mask")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        q, k, v = (scope.tensor(getattr(self, name), name) for name in ("q", "k", "v"))
        if not (q.rank == k.rank == v.rank) or q.rank < 3:
            raise Unfit("k", "expected q, k and v of as many dimensions, 3 at least")
        if not (q.dtype == k.dtype == v.dtype):
            raise Unfit("k", "expected q, k and v of one dtype")
        if q.masked or k.masked or v.masked:  # a fused kernel multiplies them by the mask's zeros
            raise Unfit("q", "expected no scores that were masked, in q, k and v")
        if not same(q.shape[-1], k.shape[-1]) or not same(k.shape[-2], v.shape[-2]):
            raise Unfit("k", "expected q's last dimension, and v's length")
        self._heads(q, k, v)
        scores = Value((*q.shape[:-1], k.shape[-2]), q.dtype)
        of = [q, k, v]
        if self.mask is not None:
            mask = scope.get(self.mask, "mask")
            if self.causal:
                raise Unfit("causal", "expected false: there is a mask")
            if mask.dtype not in ("bool", "float32", q.dtype):
                raise Unfit("mask", f"expected bool, float32 or {q.dtype}, got {mask.dtype}")
            whole = broadcast(scores, mask, "mask")
            kept = len(whole) == scores.rank and all(map(same, whole, scores.shape))
            if mask.rank < 2 or not kept:
                raise Unfit("mask", f"expected one that broadcasts to {scores.shape}")
            of.append(mask)
        return (Value((*q.shape[:-1], v.shape[-1]), q.dtype, False, depends(*of)),)

    def _heads(self, q: Value, k: Value, v: Value) -> None:
        if not all(same(a, b) for a, b in zip(k.shape[:-2], v.shape[:-2], strict=True)):
            raise Unfit("v", "expected k's leading dimensions")
        pairs = list(zip(q.shape[:-2], k.shape[:-2], strict=True))
        grouped = _grouped(q, k)
        # A candidate for minimization may have a length of 0 in the place of k's heads.
        if grouped and (q.rank != 4 or not k.shape[1] or int(q.shape[1]) % int(k.shape[1])):
            raise Unfit("k", "expected heads that q's are a multiple of")
        if not all(same(a, b) for a, b in (pairs[:-1] if grouped else pairs)):
            raise Unfit("k", f"expected q's leading dimensions, got {k.shape}")

    def text(self, scope: Scope) -> list[str]:
        args = [self.q, self.k, self.v]
        args += [f"attn_mask={self.mask}"] if self.mask is not None else []
        args += ["is_causal=True"] if self.causal else []
        args += [f"scale={self.scale!r}"] if self.scale is not None else []
        args += ["enable_gqa=True"] if _grouped(scope.values[self.q], scope.values[self.k]) else []
        return [f"{self.to} = F.scaled_dot_product_attention({', '.join(args)})"]

    def plain(self, scope: Scope) -> list[str]:
        q, k = scope.values[self.q], scope.values[self.k]
        scale = repr(self.scale) if self.scale is not None else inverse_root(int(q.shape[-1]))
        key, value, lines = self.k, self.v, []
        if _grouped(q, k):
            times = int(q.shape[1]) // int(k.shape[1])
            key, value = (f"{name}.repeat_interleave({times}, dim=1)" for name in (key, value))
        lines.append(f"scores_ = {scale} * ({self.q} @ {key}.mT)")
        if self.causal:
            ones = f"torch.ones({commas((q.shape[-2], k.shape[-2]))}, dtype=torch.bool)"
            lines.append(f'scores_ = scores_.masked_fill(~{ones}.tril(), float("-inf"))')
        elif self.mask is not None and scope.values[self.mask].dtype == "bool":
            lines.append(f'scores_ = scores_.masked_fill(~{self.mask}, float("-inf"))')
        elif self.mask is not None:
            lines.append(f"scores_ = scores_ + {self.mask}")
        if self.mask is None:
            return [*lines, f"{self.to} = torch.softmax(scores_, dim=-1) @ {value}"]
        # As SDPA does, a query that sees no key is given 0.
        lines.append('dead = (scores_ == float("-inf")).all(dim=-1, keepdim=True)')
        lines.append("probs_ = torch.softmax(scores_.masked_fill(dead, 0), dim=-1)")
        return [*lines, f"{self.to} = probs_.masked_fill(dead, 0) @ {value}"]

    def without(self, names: frozenset[str]) -> Step | None:
        return replace(self, mask=None) if self.mask in names else None


def _grouped(q: Value, k: Value) -> bool:
    """Whether the heads, which are the same in every call, are fewer in k."""
    one, other = q.shape[-3], k.shape[-3]
    return (
        isinstance(one, int)
        and isinstance(other, int)
        and one != other
        and other != 1
        or (q.rank == 4 and isinstance(one, int) and other == 1 and one != 1)
    )
