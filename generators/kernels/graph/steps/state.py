"""Steps of a function that is called for parts of a sequence: what is kept from call to call.

In their texts `pos` is where the part begins, `positions` are those of its tokens, `[Lq]`, and
`slots` all of a cache that are looked at, `[Lkv]`; `graph.plugin` says what they are. Their plain
meaning is that for the whole sequence at once: nothing is kept, and what a cache holds in the end
is the name of the cache with an underscore after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.steps.attention import Attend
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.values import Name, Scope, Unfit, Value, same
from attnfuzz.generators.render.sizes import Size, plus

CacheName = Literal["cache_k", "cache_v"]


def _decode(scope: Scope) -> Decode:
    if scope.decode is None:
        raise Unfit("kind", "expected another: the graph has no decode")
    return scope.decode


def held(cache: str) -> str:
    """The name of what a cache holds in the end, in the reference."""
    return f"{cache}_"


@dataclass(frozen=True, kw_only=True)
class CacheWrite(Step):
    """Keys or values `of` a part, as the `cache` has them, are kept there; `to` is what attention
    looks at: those of all parts so far, or all slots."""

    of: Name
    cache: CacheName
    to: Name
    operands: ClassVar[tuple[str, ...]] = ("of", "cache")
    slots: ClassVar[tuple[str, ...]] = ()

    def values(self, scope: Scope) -> tuple[Value, ...]:
        decode = _decode(scope)
        if decode.slots not in self.slots:
            raise Unfit("kind", f"expected another for slots {decode.slots}")
        value, cache = scope.tensor(self.of, "of"), scope.tensor(self.cache, "cache")
        expected = ["B", "Hkv", "D" if self.cache == "cache_k" else "Dv"]
        expected.insert(decode.length_dim, "Lq")
        meant = tuple(scope.sizes[extent] for extent in expected)
        if len(meant) != value.rank or not all(map(same, meant, value.shape)):
            raise Unfit("of", f"expected {meant}, got {value.shape}")
        if value.dtype != cache.dtype:
            raise Unfit("of", f"expected {cache.dtype}, got {value.dtype}")
        shape = list(value.shape)
        shape[decode.length_dim] = scope.sizes["Lkv"]
        return (Value(tuple(shape), value.dtype),)

    def _read(self, scope: Scope, source: str) -> list[str]:
        """What attention looks at, of all slots `source`."""
        decode = _decode(scope)
        if decode.reads == "written":
            source += f"[{':, ' * decode.length_dim}:{scope.sizes['Lkv']}]"
        return [f"{self.to} = {source}"]

    def _plain(self, held_in_the_end: str) -> list[str]:
        kept = f"{held(self.cache)} = {held_in_the_end}"
        return [kept, *self._seen()]

    def _seen(self) -> list[str]:
        """What attention looks at, in one pass over the whole."""
        return [f"{self.to} = {self.of}"] if self.to != self.of else []


@dataclass(frozen=True, kw_only=True)
class Store(CacheWrite):
    """Written to the slots of its positions, or to these modulo their number: in place, or to a
    copy."""

    kind: Literal["store"] = "store"
    form: Literal["slice", "narrow", "index_copy", "index_put", "scatter"] = "slice"
    slots: ClassVar[tuple[str, ...]] = ("in_order", "ring")

    def values(self, scope: Scope) -> tuple[Value, ...]:
        decode = _decode(scope)
        if self.form in ("slice", "narrow"):
            if decode.slots == "ring":
                raise Unfit("form", "expected another: a part may go on at the ring's beginning")
            if decode.position != "int":
                raise Unfit("form", "expected another: the position is a tensor")
        if decode.writes == "functional" and self.form in ("narrow", "index_put"):
            raise Unfit("form", "expected another: it writes in place")
        return super().values(scope)

    def text(self, scope: Scope) -> list[str]:
        decode, length = _decode(scope), scope.sizes["Lq"]
        dim, where = decode.length_dim, "positions"
        if decode.slots == "ring":
            where = f"positions % {scope.sizes['Lmax']}"
        before = ":, " * dim
        if decode.writes == "functional":
            return [f"{self.to} = {self._written_copy(dim, where, length)}"]
        match self.form:
            case "slice":
                stop = scope.sizes["Lkv"] if decode.reads == "written" else f"pos + {length}"
                written = f"{self.cache}[{before}pos:{stop}] = {self.of}"
            case "narrow":
                written = f"{self.cache}.narrow({dim}, pos, {length}).copy_({self.of})"
            case "index_copy":
                written = f"{self.cache}.index_copy_({dim}, {where}, {self.of})"
            case "index_put":
                written = f"{self.cache}[{before}{where}] = {self.of}"
            case "scatter":
                written = f"{self.cache}.scatter_({dim}, {self._index(dim, where)}, {self.of})"
        return [written, *self._read(scope, self.cache)]

    def _written_copy(self, dim: int, where: str, length: Size) -> str:
        match self.form:
            case "index_copy":
                return f"{self.cache}.index_copy({dim}, {where}, {self.of})"
            case "scatter":
                return f"{self.cache}.scatter({dim}, {self._index(dim, where)}, {self.of})"
        return f"torch.slice_scatter({self.cache}, {self.of}, {dim}, pos, pos + {length})"

    def _index(self, dim: int, where: str) -> str:
        """The slots `where` of each number that is written."""
        where = f"({where})" if "%" in where else where
        return f"{where}[:, {', '.join(['None'] * (3 - dim))}].expand_as({self.of})"

    def plain(self, scope: Scope) -> list[str]:
        decode, length = _decode(scope), scope.sizes["Lkv"]
        dim, before = decode.length_dim, ":, " * decode.length_dim
        if decode.slots == "in_order":
            rest = f"{self.cache}[{before}{length}:]"
            return self._plain(f"torch.cat(({self.of}, {rest}), dim={dim})")
        last, capacity = plus(length, -1), scope.sizes["Lmax"]
        latest = f"latest = {last} - ({last} - torch.arange({capacity})) % {capacity}"
        seen = f"(latest >= 0)[:, {', '.join(['None'] * (3 - dim))}]"
        source = f"{self.of}[{before}latest.clamp(min=0)]"
        return [
            f"{latest}  # each slot's last position, below 0 for none",
            *self._plain(f"torch.where({seen}, {source}, {self.cache})"),
        ]


@dataclass(frozen=True, kw_only=True)
class StoreInPages(CacheWrite):
    """Written in place to pages that `block_table`, `[B, pages]`, lists; and all of these pages
    gathered."""

    kind: Literal["store_in_pages"] = "store_in_pages"
    form: Literal["index_put", "index_copy"] = "index_put"
    slots: ClassVar[tuple[str, ...]] = ("pages",)

    def values(self, scope: Scope) -> tuple[Value, ...]:
        if self.form == "index_copy" and _decode(scope).cache != "blhd":
            raise Unfit("form", "expected another: a page's slots lie apart")
        return super().values(scope)

    def text(self, scope: Scope) -> list[str]:
        decode, page = _decode(scope), _decode(scope).page
        pages = f"block_table[:, positions // {page}]"
        if self.form == "index_copy":
            slots = f"({pages} * {page} + positions % {page}).flatten()"
            every = f"{self.cache}.flatten(0, 1)"
            written = f"{every}.index_copy_(0, {slots}, {self.of}.flatten(0, 1))"
        elif decode.cache == "blhd":
            written = f"{self.cache}[{pages}, positions % {page}] = {self.of}"
        else:
            written = f"{self.cache}[{pages}, :, positions % {page}] = {self.of}.transpose(1, 2)"
        gathered = f"{self.cache}[block_table]"
        if decode.cache == "bhld":
            return [written, *self._read(scope, f"{gathered}.transpose(1, 2).flatten(2, 3)")]
        return [written, *self._read(scope, f"{gathered}.flatten(1, 2)")]

    def plain(self, scope: Scope) -> list[str]:
        decode, length = _decode(scope), scope.sizes["Lkv"]
        swap = ".transpose(2, 3)" if decode.cache == "bhld" else ""
        new = f"{self.of}.transpose(1, 2)" if decode.cache == "bhld" else self.of
        old = f"{self.cache}[block_table]{swap}.flatten(1, 2)[:, {length}:]"
        pages = f"every.unflatten(1, (-1, {decode.page})){swap}.flatten(0, 1)"
        return [
            f"every = torch.cat(({new}, {old}), dim=1)",
            *self._plain(f"{pages}[block_table.flatten().argsort()]"),
        ]


@dataclass(frozen=True, kw_only=True)
class Append(CacheWrite):
    """Put after what the cache has, as a new tensor, which is returned."""

    kind: Literal["append"] = "append"
    slots: ClassVar[tuple[str, ...]] = ("appended",)

    def text(self, scope: Scope) -> list[str]:
        dim = _decode(scope).length_dim
        return [f"{self.to} = torch.cat(({self.cache}, {self.of}), dim={dim})"]

    def plain(self, scope: Scope) -> list[str]:
        return self.text(scope)


@dataclass(frozen=True, kw_only=True)
class AppendToList(CacheWrite):
    """Put after what a list has, in place."""

    kind: Literal["append_to_list"] = "append_to_list"
    slots: ClassVar[tuple[str, ...]] = ("listed",)

    def text(self, scope: Scope) -> list[str]:
        joined = f"{self.to} = torch.cat({self.cache}, dim={_decode(scope).length_dim})"
        return [f"{self.cache}.append({self.of})", joined]

    def plain(self, scope: Scope) -> list[str]:
        return self._seen()


WRITES = (Store, StoreInPages, Append, AppendToList)


@dataclass(frozen=True, kw_only=True)
class PositionMask(Step):
    """Which slots each query may look at, `[Lq, Lkv]` or `[1, 1, Lq, Lkv]`: those of positions up
    to its own, within the window. As `MaskForm`; `like` has the dtype of a float one."""

    kind: Literal["position_mask"] = "position_mask"
    like: Name
    to: Name
    form: Literal["bool", "additive", "zero_one"] = "bool"
    fill: Literal["-inf", "finfo_min"] = "-inf"
    rank: Literal[2, 4] = 2
    operands: ClassVar[tuple[str, ...]] = ("like",)

    def values(self, scope: Scope) -> tuple[Value, ...]:
        _decode(scope)
        dtype = scope.tensor(self.like, "like").dtype
        if self.fill == "finfo_min" and dtype == "float64":
            raise Unfit("fill", "expected -inf for float64")
        shape: tuple[Size, ...] = (scope.sizes["Lq"], scope.sizes["Lkv"])
        shape = (1, 1, *shape) if self.rank == 4 else shape
        return (Value(shape, "bool" if self.form == "bool" else dtype),)

    def text(self, scope: Scope) -> list[str]:
        decode = _decode(scope)
        query, lines, key = "positions[:, None]", [], "slots"
        conditions = []
        if decode.slots == "ring":
            capacity = scope.sizes["Lmax"]
            lines = [f"held = positions[-1] - (positions[-1] - slots) % {capacity}"]
            conditions, key = ["held >= 0"], "held"
        conditions.append(f"{key} <= {query}")
        if decode.window is not None:
            conditions.append(f"{key} > {query} - {decode.window}")
        joined = " & ".join(f"({each})" for each in conditions)
        seen = joined if len(conditions) > 1 else conditions[0]
        return [*lines, self._formed(seen)]

    def _formed(self, seen: str) -> str:
        """The statement, where `seen` is true for what a query may look at."""
        fill = 'float("-inf")'
        if self.fill == "finfo_min":
            fill = f"torch.finfo({self.like}.dtype).min"
        place = "[None, None]" if self.rank == 4 else ""
        match self.form:
            case "additive":
                made = f"torch.where({seen}, 0.0, {fill}).to({self.like}.dtype)"
            case "zero_one":
                made = f"({seen}).to({self.like}.dtype)"
            case _:
                whole = seen.startswith("torch.") or not place
                made = seen if whole else f"({seen})"
        return f"{self.to} = {made}{place}"

    def plain(self, scope: Scope) -> list[str]:
        window, length = _decode(scope).window, scope.sizes["Lq"]
        band = f".triu({1 - window})" if window is not None else ""
        seen = f"torch.ones({length}, {length}, dtype=torch.bool).tril(){band}"
        return [replace(self, fill="-inf")._formed(seen)]


@dataclass(frozen=True, kw_only=True)
class AttendWritten(Step):
    """`F.scaled_dot_product_attention` as in `Attend`, without a mask: the first part sees itself
    causally, and the one token of a later part all that is written."""

    kind: Literal["attend_written"] = "attend_written"
    q: Name
    k: Name
    v: Name
    to: Name
    scale: Annotated[float, Field(allow_inf_nan=False, gt=0, le=1e4)] | None = None
    operands: ClassVar[tuple[str, ...]] = ("q", "k", "v")

    @property
    def _whole(self) -> Attend:
        return Attend(q=self.q, k=self.k, v=self.v, to=self.to, causal=True, scale=self.scale)

    def values(self, scope: Scope) -> tuple[Value, ...]:
        decode = _decode(scope)
        if decode.reads != "written" or decode.window is not None or decode.tokens != 1:
            raise Unfit("kind", "expected another: not all of what there is may be seen")
        return self._whole.values(scope)

    def text(self, scope: Scope) -> list[str]:
        length = scope.sizes["Lq"]
        if length == 1:
            return replace(self._whole, causal=False).text(scope)
        if isinstance(length, int):
            return self._whole.text(scope)
        [line] = self._whole.text(scope)
        # As models write it: SDPA takes no symbolic truth value.
        return [line.replace("is_causal=True", f"is_causal=True if {length} > 1 else False")]

    def plain(self, scope: Scope) -> list[str]:
        return self._whole.plain(scope)
