"""What a graph is about: one attention, one with projections, or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnfuzz.generators.kernels.graph.attending import Attending
from attnfuzz.generators.kernels.graph.building import Builder
from attnfuzz.generators.kernels.graph.spec import Parameter
from attnfuzz.generators.kernels.graph.steps.arithmetic import Binary, Cast, Linear, Norm, Pointwise
from attnfuzz.generators.kernels.graph.steps.attention import Merge, ZeroEmptyRows
from attnfuzz.generators.kernels.graph.steps.joins import Split
from attnfuzz.generators.kernels.graph.steps.rotary import Rotary
from attnfuzz.generators.kernels.graph.steps.views import Contiguous, Slice
from attnfuzz.generators.kernels.graph.values import Value
from attnfuzz.generators.strategies.draws import one_in, weighted

SPLIT_AT = 2
"""Keys that the first of two parts has."""


@dataclass(frozen=True)
class Setting:
    """How q, k and v are `given`, how the result is `returned`, and the name of the mask."""

    given: str
    returned: str
    mask: str | None


class Families:
    """Builds a graph's steps; each method leaves `out` and gives the names that are returned.
    `also`: something more than `out` is returned."""

    norm = weighted((2, "none"), (2, "rms_norm"), (2, "layer_norm"))
    split = weighted((2, "parts"), (2, "chunk"), (2, "heads"))
    linear = weighted((3, "linear"), (1, "matmul"))
    merge = weighted((2, "logaddexp"), (1, "sigmoid"))
    form = weighted((1, "rms_norm"), (1, "layer_norm"))
    gated = one_in(4)
    other_keys = weighted((1, True), (1, False))
    further = one_in(3)
    times = weighted((3, 2), (1, 3))

    def __init__(
        self, builder: Builder, attending: Attending, setting: Setting, also: bool
    ) -> None:
        self.b, self.attending, self.at, self.also = builder, attending, setting, also
        self.draw = builder.draw
        self.returns: tuple[str, ...] = ("out",)

    def build(self, family: str) -> tuple[str, ...]:
        """The steps of that family. Gives the names of what is returned."""
        families: dict[str, Callable[[], None]] = {
            "single": self.single, "cross": self.cross, "split": self.split_keys,
            "sink": self.sink, "shared": self.shared, "layers": self.layers,
            "projected": self.projected,
        }  # fmt: skip
        families[family]()
        return self.returns

    def _arranged(self) -> None:
        form, first = self.b.rotation(), self.at.given == "blhd"
        for name, heads, dim in (("q", "Hq", "D"), ("k", "Hkv", "D"), ("v", "Hkv", "Dv")):
            if form is not None and name != "v" and first:
                self.b.add(Rotary(of=name, to=name, dim=1, form=form))
            self.b.arrange(name, self.at.given, heads, dim)  # type: ignore[arg-type]
            if form is not None and name != "v" and not first:
                self.b.add(Rotary(of=name, to=name, form=form))

    def single(self) -> None:
        """One attention; perhaps keys and values are returned too, as a cache is filled."""
        self._arranged()
        self.attending.attend("q", "k", "v", "out", self.at.mask)
        if self.also:
            self.b.add(Contiguous(of="k", to="keys"), Contiguous(of="v", to="values"))
            self.returns = ("out", "keys", "values")
        self.b.hand_back("out", self.at.returned)

    def cross(self) -> None:
        """What comes of one attention asks keys and values of another's."""
        self._arranged()
        for name, like in (("k2", "k"), ("v2", "v")):
            given = self.b.another(name, like, self._given(like))
            self.b.arrange(given, self.at.given, "Hkv", "D" if like == "k" else "Dv")
        self.attending.attend("q", "k", "v", "hidden", self.at.mask)
        self._residual("hidden", "q")
        self.attending.attend("hidden", "k2", "v2", "out", None)
        self._ended()

    def _given(self, name: str) -> Value:
        return self.b.arguments[name]

    def shared(self) -> None:
        """Two attentions of the same q and v. With other keys and the same mask: their difference
        is taken (differential attention: Ye et al., 2024). With the same keys and no mask, perhaps
        another scale: their sum (local beside global attention)."""
        self._arranged()
        fused = self.draw(self.attending.ways.fused)
        op: Any = "+"
        k2, mask = "k", None
        if self.draw(self.other_keys):
            op = "-"
            k2, mask = self.b.another("k2", "k", self._given("k")), self.at.mask
            self.b.arrange(k2, self.at.given, "Hkv", "D")
        self.attending.attend("q", "k", "v", "out", self.at.mask, fused)
        self.attending.attend("q", k2, "v", "out2", mask, fused)
        if self.also:
            self.returns = ("out", "out2")
        else:
            self.b.add(Binary(left="out", right="out2", to="out", op=op))
        self.b.hand_back("out", self.at.returned)

    def split_keys(self) -> None:
        """Attention over two parts of the keys, merged by log-sum-exp. Where a mask leaves a query
        no key of a part, that part's result is 0, and its weight; of neither part, NaN."""
        self._arranged()
        b = self.b
        for name, other in (("k", "k2"), ("v", "v2")):
            b.add(Slice(of=name, to=other, dim=2, start=SPLIT_AT))
        for name in ("k", "v"):
            b.add(Slice(of=name, to=name, dim=2, stop=SPLIT_AT))
        mask = mask2 = self.at.mask
        if mask is not None and b.value(mask).shape[-1] != 1:
            last, mask2 = b.value(mask).rank - 1, "mask2"
            b.add(Slice(of=mask, to=mask2, dim=last, start=SPLIT_AT))
            b.add(Slice(of=mask, to=mask, dim=last, stop=SPLIT_AT))
        self.attending.by_hand("q", "k", "v", "out", mask, lse="lse")
        self.attending.by_hand("q", "k2", "v2", "out2", mask2, lse="lse2")
        if mask is not None:
            for name, lse in (("out", "lse"), ("out2", "lse2")):
                b.add(ZeroEmptyRows(of=name, lse=lse, to=name))
        form = self.draw(self.merge)
        b.add(Merge(of=("out", "out2"), lse=("lse", "lse2"), to="out", form=form))
        if b.value("out").dtype != b.value("v").dtype:  # of scores with a float32 mask
            b.add(Cast(of="out", to="out", like="v"))
        b.hand_back("out", self.at.returned)

    def sink(self) -> None:
        """One attention with a sink."""
        self._arranged()
        self.attending.with_sink("q", "k", "v", "out")
        self._ended()

    def layers(self) -> None:
        """Some layers, one after the other, with a norm and a residual each."""
        self._arranged()
        for _ in range(self.draw(self.times)):
            source = self._normed("q", "hidden")
            self.attending.attend(source, "k", "v", "out", self.at.mask)
            self._residual("out", "q", to="q")
        self.b.add(Pointwise(of="q", to="out", function="tanh"))
        self._ended()

    def _normed(self, name: str, to: str) -> str:
        form = self.draw(self.norm)
        value = self.b.value(name)
        if form == "none" or (form == "layer_norm" and value.shape[-1] == 1):
            return name
        self.b.add(Norm(of=name, to=to, form=form))
        return to

    def _residual(self, name: str, other: str, to: str | None = None) -> None:
        self.b.add(Binary(left=name, right=other, to=to or name, op="+"))

    def _ended(self) -> None:
        self.b.hand_back("out", self.at.returned)

    def projected(self) -> None:
        """Self-attention of q as `[B, L, E]`, E = Hq * D, through one fused projection, with the
        way back, a norm before and a residual after it."""
        b, draw = self.b, self.draw
        source = self._normed("q", "hidden")
        way = draw(self.split)
        rows: Any = ("Hq", "3", "D") if way == "heads" else ("3", "Hq", "D")
        weight = b.parameter(
            Parameter(name="wqkv", rows=rows, columns=("Hq", "D"), values="weight")
        )
        b.add(Linear(of=source, weight=weight, to="qkv", form=draw(self.linear)))
        names = ("q2", "k2", "v2")
        if way == "chunk":
            form: Any = "chunk" if draw(b.forms.flag) else "split"
            b.add(Split(of="qkv", to=names, dim=2, form=form))
            for name in names:
                b.unflatten(name, 2, "Hq", "D")
                b.exchange(name, 1, 2)
        elif way == "parts":
            b.unflatten("qkv", 2, "3", "Hq", "D")
            b.move("qkv", (2, 0, 3, 1, 4))
            b.add(Split(of="qkv", to=names, dim=0, form="unbind"))
        else:
            b.unflatten("qkv", 2, "Hq", "3", "D")
            b.add(Split(of="qkv", to=names, dim=3, form="unbind"))
            for name in names:
                b.exchange(name, 1, 2)
        if draw(self.further):
            norm = draw(self.form)
            for name in names[:2]:
                wide = b.value(name).shape[-1] != 1
                b.add(Norm(of=name, to=name, form=norm if wide else "rms_norm"))
        rotation = b.rotation()
        if rotation is not None:
            b.add(*(Rotary(of=name, to=name, form=rotation) for name in names[:2]))
        self.attending.attend("q2", "k2", "v2", "out", self.at.mask)
        b.hand_back("out", "merged")
        if draw(self.gated):
            b.add(Pointwise(of="q", to="gate", function="sigmoid"))
            b.add(Binary(left="out", right="gate", to="out", op="*"))
        weight = b.parameter(
            Parameter(name="wo", rows=("Hq", "D"), columns=("Hq", "D"), values="weight")
        )
        b.add(Linear(of="out", weight=weight, to="out", form=draw(self.linear)))
        if draw(b.forms.flag):
            self._residual("out", "q")
