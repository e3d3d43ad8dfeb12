"""One attention as steps, written in any of the ways that models write it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from attnfuzz.generators.kernels.graph.building import Builder
from attnfuzz.generators.kernels.graph.spec import MaskForm, Parameter
from attnfuzz.generators.kernels.graph.steps.arithmetic import Binary, Cast, Pointwise, Scale
from attnfuzz.generators.kernels.graph.steps.attention import (
    Attend,
    Einsum,
    LogSumExp,
    MaskScores,
    Product,
    Softmax,
)
from attnfuzz.generators.kernels.graph.steps.joins import Cat
from attnfuzz.generators.kernels.graph.steps.views import Expand, Slice
from attnfuzz.generators.strategies.draws import one_in, weighted
from attnfuzz.generators.strategies.swarm import Swarm


class Ways:
    """The ways to write an attention, for one swarm."""

    def __init__(self, swarm: Swarm) -> None:
        self.fused = weighted((2, False), (1, True))
        self.order = weighted((5, "matmul"), (2, "einsum"), (2, "bmm"), (2, "rank5"))
        self.product = weighted((3, "matmul"), (2, "@"), (1, "method"))
        self.flat_product = weighted((4, "bmm"), (1, "matmul"), (1, "baddbmm"))
        self.transposed = one_in(6)
        self.scaled = weighted((4, "after"), (2, "query"), (1, "key"), (1, "none"))
        self.scale = weighted(
            (4, "*"), (2, "mul"), (4, "/"), (4, "div"), (1, "tensor"), (1, "full"), (1, "argument")
        )
        self.factor = st.sampled_from((None,) * 12 + (1.0, 0.5, 0.125, 0.1, 2.0))
        self.fill = weighted((3, "-inf"), (2, "finfo_min"), (2, "tensor"))
        self.select = weighted((3, "masked_fill"), (2, "where"), (2, "eq_zero"))
        self.softmax = weighted(
            (5, "functional"), (4, "method"), (1, "module"), (1, "exp_sum"), (1, "log_softmax")
        )
        self.float32 = one_in(3)
        self.rare = one_in(8)
        self.einsum_scores = weighted((2, "bhqk"), (1, "bqhk"))
        self.repeated = weighted((3, "expand"), (1, "repeat"), (2, "repeat_interleave"))


class Attending:
    """Adds an attention of `q`, `k` and `v`, `[B, Hq, Lq, D]`, `[B, Hkv, Lkv, D]` and
    `[B, Hkv, Lkv, Dv]`, to a graph. `mask` names a mask or is None."""

    def __init__(self, builder: Builder, ways: Ways, form: MaskForm) -> None:
        self.b, self.ways, self.form = builder, ways, form
        self.draw = builder.draw

    def attend(
        self, q: str, k: str, v: str, to: str, mask: str | None, fused: bool | None = None
    ) -> None:
        """One attention, `[B, Hq, Lq, Dv]`; `fused`: whether SDPA is called, where it can be."""
        if fused is None:
            fused = self.draw(self.ways.fused)
        if fused and self._fused(q, k, v, to, mask):
            return
        self.by_hand(q, k, v, to, mask)

    def _fused(self, q: str, k: str, v: str, to: str, mask: str | None) -> bool:
        if mask is not None and self.form.form == "zero_one":
            return False
        scale = self.draw(self.ways.factor)
        self.b.add(Attend(q=q, k=k, v=v, to=to, mask=mask, scale=scale))
        self.b.decorate(to)
        return True

    def by_hand(self, q: str, k: str, v: str, to: str, mask: str | None, lse: str = "") -> None:
        """One attention of products and a softmax; with `lse`, its log-sum-exp too,
        `[B, Hq, Lq, 1]`."""
        order = self.draw(self.ways.order) if not lse else "matmul"
        for name in dict.fromkeys((q, k, v)):
            self.b.decorate(name)
        if order == "rank5":
            self._grouped(q, k, v, to, mask)
        else:
            k, v = self._repeated(k, "key"), self._repeated(v, "value")
            {"matmul": self._matmul, "einsum": self._einsum, "bmm": self._bmm}[order](
                q, k, v, to, mask, **({"lse": lse} if lse else {})
            )
        self.b.decorate(to)

    def _repeated(self, name: str, to: str) -> str:
        """Every query head its key head."""
        b, sizes = self.b, self.b.scope.sizes
        if sizes["G"] == 1:
            return name
        b.unsqueeze(name, 2, to)
        form = self.draw(self.ways.repeated)
        b.add(Expand(of=to, to=to, dim=2, size="G", form=form))
        b.flatten(to, 1, 2)
        return to

    def _scaled(self, name: str, when: str, chosen: str, to: str) -> str:
        """`name`, scaled as `to` if that is when it is done."""
        if when != chosen:
            return name
        form: Any = self.draw(self.ways.scale)
        if form == "argument":
            taken = any(each.name == "scale" for each in self.b.parameters)
            if not taken:
                self.b.parameter(Parameter(name="scale", values="positive"))
            self.b.add(Binary(left=name, right="scale", to=to, op="*"))
        else:
            factor = self.draw(self.ways.factor)
            self.b.add(Scale(of=name, to=to, factor=factor, form=form))
        return to

    def _matmul(self, q: str, k: str, v: str, to: str, mask: str | None, lse: str = "") -> None:
        b, when = self.b, self.draw(self.ways.scaled)
        q = self._scaled(q, "query", when, "query")
        k = self._scaled(k, "key", when, "key")
        turned = not lse and self.draw(self.ways.transposed)
        first, second = (k, q) if turned else (q, k)
        right = "query" if turned else "key"
        b.exchange(second, 2, 3, right)
        b.add(Product(left=first, right=right, to="scores", form=self.draw(self.ways.product)))
        self._scaled("scores", "after", when, "scores")
        if mask is not None:
            self._masked(self._mask(mask, turned))
        if lse:
            b.add(LogSumExp(of="scores", to=lse))
        self._softmax(2 if turned else 3, v)
        if turned:
            b.exchange("probs", 2, 3)
        b.add(Product(left="probs", right=v, to=to, form=self.draw(self.ways.product)))

    def _mask(self, mask: str, turned: bool) -> str:
        """The mask as it broadcasts to scores, whose last two dimensions may be exchanged."""
        if not turned:
            return mask
        rank = self.b.value(mask).rank
        self.b.exchange(mask, rank - 2, rank - 1, "mask2")
        return "mask2"

    def _bmm(self, q: str, k: str, v: str, to: str, mask: str | None) -> None:
        """In three dimensions, batch and heads as one."""
        b, when = self.b, self.draw(self.ways.scaled)
        for name, new in ((q, "query"), (k, "key"), (v, "value")):
            b.flatten(name, 0, 1, to=new)
        self._scaled("query", "query", when, "query")
        self._scaled("key", "key", when, "key")
        b.exchange("key", 1, 2)
        form = self.draw(self.ways.flat_product)
        b.add(Product(left="query", right="key", to="scores", form=form))
        self._scaled("scores", "after", when, "scores")
        if mask is not None and b.value(mask).rank == 4:
            b.unflatten("scores", 0, "B", "Hq")
            self._masked(mask)
            b.flatten("scores", 0, 1)
        elif mask is not None:
            self._masked(mask)
        self._softmax(2, "value")
        b.add(Product(left="probs", right="value", to=to, form=self.draw(self.ways.flat_product)))
        b.unflatten(to, 0, "B", "Hq")

    def _einsum(self, q: str, k: str, v: str, to: str, mask: str | None) -> None:
        """With the length before the heads, as it is stored."""
        b, when = self.b, self.draw(self.ways.scaled)
        for name, new in ((q, "query"), (k, "key"), (v, "value")):
            b.exchange(name, 1, 2, new)
        self._scaled("query", "query", when, "query")
        self._scaled("key", "key", when, "key")
        scores = self.draw(self.ways.einsum_scores)
        if scores == "bhqk":
            b.add(Einsum(left="query", right="key", to="scores", equation="bqhd,bkhd->bhqk"))
        else:
            b.add(Einsum(left="query", right="key", to="scores", equation="bqhd,bkhd->bqhk"))
        self._scaled("scores", "after", when, "scores")
        if mask is not None:
            if scores == "bqhk" and b.value(mask).rank == 4:
                b.exchange(mask, 1, 2, "mask2")
            elif scores == "bqhk":
                b.unsqueeze(mask, 1, "mask2")
            self._masked("mask2" if scores == "bqhk" else mask)
        self._softmax(3, "value")
        if scores == "bhqk":
            b.add(Einsum(left="probs", right="value", to=to, equation="bhqk,bkhd->bqhd"))
        else:
            b.add(Einsum(left="probs", right="value", to=to, equation="bqhk,bkhd->bqhd"))
        b.exchange(to, 1, 2)

    def _grouped(self, q: str, k: str, v: str, to: str, mask: str | None) -> None:
        """In five dimensions, queries grouped by their key head."""
        b, when = self.b, self.draw(self.ways.scaled)
        b.decorate(q)
        b.unflatten(q, 1, "Hkv", "G", to="query")
        b.unsqueeze(k, 2, "key")
        b.unsqueeze(v, 2, "value")
        self._scaled("query", "query", when, "query")
        self._scaled("key", "key", when, "key")
        b.exchange("key", 3, 4)
        b.add(Product(left="query", right="key", to="scores", form=self.draw(self.ways.product)))
        self._scaled("scores", "after", when, "scores")
        if mask is not None:
            value = b.value(mask)
            if value.rank == 4 and value.shape[1] != 1:
                b.unflatten(mask, 1, "Hkv", "G", to="mask2")
            elif value.rank == 4:
                b.unsqueeze(mask, 1, "mask2")
            self._masked("mask2" if value.rank == 4 else mask)
        self._softmax(4, "value")
        b.add(Product(left="probs", right="value", to=to, form=self.draw(self.ways.product)))
        b.flatten(to, 1, 2)

    def _masked(self, mask: str) -> None:
        b = self.b
        if self.form.form in ("additive", "biased"):
            b.add(MaskScores(of="scores", mask=mask, to="scores", form="add"))
            return
        form: Any = self.draw(self.ways.select) if self.form.form == "bool" else "eq_zero"
        fill = self.draw(self.ways.fill)
        b.add(MaskScores(of="scores", mask=mask, to="scores", form=form, fill=fill))

    def _softmax(self, dim: int, v: str) -> None:
        """The probabilities, in the dtype of v."""
        b, form = self.b, self.draw(self.ways.softmax)
        if self.draw(self.ways.rare):
            b.add(Pointwise(of="scores", to="scores", function="softcap"))
        wide = b.value("scores").dtype == "float64" or form in ("exp_sum", "module")
        float32 = not wide and self.draw(self.ways.float32)
        b.decorate("scores")
        b.add(Softmax(of="scores", to="probs", dim=dim, form=form, float32=float32))
        if b.value("probs").dtype != b.value(v).dtype:
            b.add(Cast(of="probs", to="probs", like=v))
        if self.draw(self.ways.rare):
            b.add(Pointwise(of="probs", to="probs", function="dropout"))

    def with_sink(self, q: str, k: str, v: str, to: str) -> None:
        """One attention in which each head may look at nothing: a learned score in front of the
        softmax, whose probability is left out (attention sinks, as gpt-oss has them)."""
        b = self.b
        k, v = self._repeated(k, "key"), self._repeated(v, "value")
        b.exchange(k, 2, 3, "key")
        b.add(Product(left=q, right="key", to="scores", form=self.draw(self.ways.product)))
        self._scaled("scores", "after", "after", "scores")
        sink = b.parameter(Parameter(name="sink", rows=("Hq",)))
        b.unsqueeze(sink, 0)
        b.unsqueeze(sink, 2)
        b.unsqueeze(sink, 3)
        b.add(Expand(of=sink, to=sink, dim=0, size="B"), Expand(of=sink, to=sink, dim=2, size="Lq"))
        if b.value("scores").dtype != b.value(sink).dtype:
            b.add(Cast(of=sink, to=sink, like="scores"))
        b.add(Cat(of=("scores", sink), to="scores", dim=3))
        self._softmax(3, v)
        b.add(Slice(of="probs", to="probs", dim=3, stop=-1))
        b.add(Product(left="probs", right=v, to=to, form=self.draw(self.ways.product)))
