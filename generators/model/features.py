"""The features of a program: every choice in it that is not the default, as short stable strings.

They are coarse on purpose. A bucket's trigger is the features of its minimized program, and a new
failure is taken for the same cause when the trigger is a subset of its features; so a feature says
"a length that is no multiple of 16", not which one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.expressions import is_integral, mask_axes, score_axes, uses_score
from attnfuzz.generators.model.indices import Index, IntBinary, IntConst, Table
from attnfuzz.generators.model.masks import AllTrue, Causal, Documents, Mask, SlidingWindow
from attnfuzz.generators.model.program import Call, Input, Layout, Program, Shape, Training
from attnfuzz.generators.model.scores import (
    FloatBinary,
    FloatCall,
    FloatConst,
    FromIndex,
    Score,
    ScoreMod,
)
from attnfuzz.generators.model.tree import class_of, kind_of, parts, walk

_FAMILIES = {
    "attnfuzz.generators.model.masks": "mask",
    "attnfuzz.generators.model.scores": "score",
    "attnfuzz.generators.model.indices": "int",
}
_BACKENDS = {
    "eager": ("compile",),
    "aot_eager": ("compile", "compile.aot_eager"),
    "inductor": ("compile", "compile.aot_eager", "compile.inductor"),
}
"""Each does what those before it do, so what fails with them may well fail with it."""
_VIAS = {"layers": "module", "aoti": "export"}
"""Layers are modules, and what is compiled ahead of time was exported: as for the back-ends."""
_PLAIN = (AllTrue, Score, FloatConst, FromIndex, Index, IntConst)
_OPERATOR: dict[type, tuple[str, ...]] = {
    FloatBinary: ("op",),
    FloatCall: ("function",),
    IntBinary: ("op",),
}
_TELLING: dict[type, tuple[str, ...]] = {
    Causal: ("offset",),
    Documents: ("shared_prefix",),
    SlidingWindow: ("dilation",),
}


def features(program: Program) -> frozenset[str]:
    """Every choice of `program` that is not the default, as `kernel.flex`, `mask.causal`,
    `shape.kv_len.mod16`, `compile.inductor`. The default program has none."""
    return frozenset(_features(program))


def _features(p: Program) -> Iterator[str]:
    yield from plugin_of(p).features(p)
    yield from _shape(_of_one_rank(p), "shape")
    for name in ("q", "k", "v"):
        yield from _input(getattr(p, name), name)
    if p.packed != "none":
        yield f"packed.{p.packed}"
    yield from _expressions(p)
    yield from choices(p.surround, "surround", but=("epilogue",))
    if p.surround.layers > 2:
        yield "surround.layers.2"  # three are two and one more: what two trigger is known in three
    if p.surround.epilogue != "none" or p.surround.layers > 1:
        yield "surround.epilogue"  # what a layer gives goes on to the next
    if p.surround.epilogue not in ("none", "scaled"):
        yield f"surround.epilogue.{p.surround.epilogue}"
    if p.compile is not None:
        yield from _BACKENDS[p.compile.backend]
        yield from choices(p.compile, "compile", but=("backend",))
        if p.compile.via in _VIAS:
            yield f"compile.via.{_VIAS[p.compile.via]}"
        yield from choices(p.compile.marks, "compile.marks")
    yield from choices(p.modes, "modes")
    yield from _mesh(p)
    yield from _calls(p)
    if p.draws:
        yield "draws"
    if p.argument is not None:
        yield f"argument.{p.argument.what}"
        yield from choices(p.argument, "argument", but=("what",))
    if p.training is not None:
        yield from _training(p.training)
    if p.transform == "grad":  # what fails in training may well fail with it
        yield from _training(Training())
    yield from choices(p, "", but=("packed",))


def _of_one_rank(p: Program) -> Shape:
    """The extents of each rank, where ranks share them evenly: 48 positions are nothing special for
    three ranks, nor are three heads."""
    method, mesh = method_of(p), p.mesh
    if method is None or mesh is None or mesh.lengths:
        return p.shape
    ranks = {"batch": mesh.data, "heads": mesh.tensor, "length": 1}
    ranks[method.shared] *= mesh.degree  # not by its `Sharding`: candidates may be no programs
    shared = {"batch": ("batch",), "heads": ("q_heads", "kv_heads"), "length": ("q_len", "kv_len")}
    parts_of = dict[str, int]()
    for what, names in shared.items():
        extents = [getattr(p.shape, name) for name in names]
        if not any(extent % ranks[what] for extent in extents):
            parts_of |= {
                name: extent // ranks[what] for name, extent in zip(names, extents, strict=True)
            }
    return replace(p.shape, **parts_of)


def _shape(shape: Shape, prefix: str) -> Iterator[str]:
    if shape.batch > 1:
        yield f"{prefix}.batch"
    if shape.q_heads > 1:
        yield f"{prefix}.heads"
    if not shape.batch:
        yield f"{prefix}.batch.0"
    if not shape.q_heads:
        yield f"{prefix}.heads.0"
    if shape.q_heads != shape.kv_heads:
        yield f"{prefix}.gqa"
        if (group := shape.q_heads // max(shape.kv_heads, 1)) & (group - 1):
            yield f"{prefix}.gqa.nonpow2"
    yield from _length(shape.q_len, f"{prefix}.q_len")
    yield from _length(shape.kv_len, f"{prefix}.kv_len")
    if shape.q_len != shape.kv_len:
        yield f"{prefix}.q!=kv"
    yield from _head_dim(shape.head_dim, f"{prefix}.head_dim")
    if shape.v_head_dim not in (None, shape.head_dim):
        yield f"{prefix}.v_head_dim"


def _length(length: int, key: str) -> Iterator[str]:
    """Classes of a length: 0, 1, below 16, no multiple of 16, above 16 and above 128. What holds
    of a length is said of it even where more is: 1 is also below 16."""
    if length in (0, 1):
        yield f"{key}.{length}"
    if length < 16:
        yield f"{key}.lt16"
    if length % 16:
        yield f"{key}.mod16"
    if length > 16:
        yield f"{key}.gt16"
    if length > 128:
        yield f"{key}.gt128"


def _head_dim(extent: int, key: str) -> Iterator[str]:
    if extent & (extent - 1):
        yield f"{key}.nonpow2"
    if extent < 16:
        yield f"{key}.lt16"
    if extent % 8:
        yield f"{key}.mod8"
    if extent > 16:
        yield f"{key}.gt16"
    if extent > 128:
        yield f"{key}.gt128"


def _input(tensor: Input, name: str) -> Iterator[str]:
    if tensor.dtype != "float32":
        yield f"dtype.{name}.{tensor.dtype}"
    if tensor.values != "normal":
        yield f"values.{name}.{tensor.values}"
    for each in parts(Layout):
        if getattr(tensor.layout, each.name) != each.default:
            yield f"layout.{name}.{each.name}"


def _mesh(p: Program) -> Iterator[str]:
    if p.mesh is None:
        return
    yield "mesh"
    method = method_of(p)
    if method is not None:
        yield from method.features(p)
    if p.mesh.world_size > 1:
        yield "mesh.world_size"
    if p.mesh.ranks == "processes":
        yield "mesh.processes"
    placed = [(name, getattr(p.mesh, name)) for name in ("q", "k", "v")]
    yield from (f"mesh.{name}.{where}" for name, where in placed if where != "replicate")
    if method is None and any(extent % p.mesh.world_size for extent in _sharded(p)):
        yield "mesh.uneven"
    if p.mesh.plain_mask:
        yield "mesh.plain_mask"


def _sharded(p: Program) -> Iterator[int]:
    """The extents that a mesh cuts."""
    shape = p.shape
    of = {"batch": (shape.batch,) * 3, "heads": (shape.q_heads, shape.kv_heads, shape.kv_heads)}
    of["length"] = (shape.q_len, shape.kv_len, shape.kv_len)
    of["head_dim"] = (shape.head_dim, shape.head_dim, shape.v_head_dim or shape.head_dim)
    for place, name in enumerate(("q", "k", "v")):
        if (where := getattr(p.mesh, name)) != "replicate":
            yield of[where][place]


def _calls(p: Program) -> Iterator[str]:
    if not p.calls:
        return
    yield "calls"
    first = Call(batch=p.shape.batch, q_len=p.shape.q_len, kv_len=p.shape.kv_len)
    for extent in ("batch", "q_len", "kv_len"):
        if any(getattr(call, extent) != getattr(first, extent) for call in p.calls):
            yield f"calls.{extent}"
        if extent != "batch" and any(getattr(call, extent) < 2 for call in p.calls):
            yield f"calls.{extent}.lt2"
    if any(not call.fresh_mods for call in p.calls):
        yield "calls.reused_mods"


def _training(training: Training) -> Iterator[str]:
    yield "training"
    yield from (f"training.d{name}" for name in training.wrt)
    yield from choices(training, "training")


def _expressions(p: Program) -> Iterator[str]:
    """The mask's and the score modification's nodes, and the axes that few of them depend on. The
    plainest leaves are no features of their own: any other leaf might stand in their place."""
    if p.mask is not None:
        yield "mask"
        yield from (f"mask.on.{axis}" for axis in mask_axes(p.mask) if axis in ("b", "h"))
        yield from _nodes(p.mask)
    if p.score_mod is not None:
        yield "score"
        axes = score_axes(p.score_mod)
        yield from (f"score.on.{axis}" for axis in axes if axis in ("b", "h"))
        if not uses_score(p.score_mod):
            yield "score.ignores_score"
            ignored = [axis for axis in ("q_idx", "kv_idx") if axis not in axes]
            yield from (f"score.ignores_{axis}" for axis in ignored)
            if ignored:
                yield "score.broadcasts"  # a row, a column or one number
        if is_integral(p.score_mod):
            yield "score.integral"
        yield from _nodes(p.score_mod)


def _nodes(root: Mask | ScoreMod) -> Iterator[str]:
    """Each node as `mask.causal`, with its operator as `score.call.tanh`; each table."""
    for node in walk(root):
        cls = class_of(node)
        if isinstance(node, Table):
            yield from _table(node)
        elif cls not in _PLAIN:
            prefix = f"{_FAMILIES[cls.__module__]}.{kind_of(cls)}"
            yield ".".join([prefix, *(getattr(node, name) for name in _OPERATOR.get(cls, ()))])
            yield from choices(node, prefix)
            if getattr(node, "chained", False):  # table[q_idx][kv_idx], in a mask or a score
                yield "table.chained"
            yield from (
                f"{prefix}.{name}"
                for name in _TELLING.get(cls, ())
                if getattr(node, name) != _default(cls, name)
            )


def _table(table: Table) -> Iterator[str]:
    if not table.axes:
        yield "table.axes0"
    yield from (f"table.axes{count}" for count in range(2, len(table.axes) + 1))
    if table.unit:
        yield "table.unit"
    if table.dtype not in ("bool", "int64", "float32"):
        yield f"table.{table.dtype}"


def _default(cls: type, name: str) -> Any:
    return next(each.default for each in parts(cls) if each.name == name)
