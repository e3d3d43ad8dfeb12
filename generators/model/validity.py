"""Which combinations are programs at all: the constraints that the types cannot say.

`problems(program)` gives every broken rule as a key and a sentence, or an empty list. What a
kernel merely refuses (mixed dtypes, a back-end that the device lacks) is no problem: such programs
run, and the refusal is recognised. A field that does not apply (a mask's broadcast axes where there
is no mask) is ignored; a field that contradicts another is a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.registry import learns_lse
from attnfuzz.generators.model import compiling
from attnfuzz.generators.model.changing import changing_problems
from attnfuzz.generators.model.dropout import dropout_problems
from attnfuzz.generators.model.expressions import (
    has_learnable,
    is_boolean,
    is_constant,
    mask_axes,
    nodes,
    score_axes,
    uses_score,
)
from attnfuzz.generators.model.indices import IntBinary, IntConst, IntLookup, Table
from attnfuzz.generators.model.masks import Compare, TableMask, every_row_sees
from attnfuzz.generators.model.meshes import mesh_problems
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Layout, Program
from attnfuzz.generators.model.scores import (
    FloatBinary,
    FloatCall,
    FloatConst,
    FloatLookup,
    Softcap,
)
from attnfuzz.generators.model.tree import walk

MAX_NODES = 300
"""Of a mask or a score modification: what is drawn has some ten; rendering takes their square."""

INTEGERS = ("int32", "int64")
FLOATS = ("float32", "float16", "bfloat16", "float64")
FILLS = {
    "bool": ("coin", "zeros", "ones"),
    "integer": ("uniform", "arange", "sorted", "coin", "zeros", "ones"),
    "float": ("normal", "uniform", "arange", "coin", "zeros", "ones"),
}


__all__ = ["Problem", "mask_axes", "problems", "score_axes"]

Rule = Callable[[Program], Iterator[Problem]]


def problems(program: Program) -> list[Problem]:
    """Every rule that `program` breaks, in a fixed order; empty when it is a program."""
    too_large = list(_size(program))
    return too_large or [problem for rule in RULES for problem in rule(program)]


def _size(p: Program) -> Iterator[Problem]:
    for key in ("mask", "score_mod"):
        tree = getattr(p, key)
        if tree is not None and sum(1 for _ in islice(walk(tree), MAX_NODES + 1)) > MAX_NODES:
            yield Problem(key, f"expected at most {MAX_NODES} nodes, got more")


def _heads(p: Program) -> Iterator[Problem]:
    hq, hkv = p.shape.q_heads, p.shape.kv_heads
    if not hq or not hkv:
        if hq != hkv:
            yield Problem("shape.kv_heads", f"expected as many as q_heads ({hq}), as one is 0")
    elif hq % hkv:
        yield Problem("shape.q_heads", f"expected a multiple of kv_heads ({hkv}), got {hq}")
    elif hq != hkv and not plugin_of(p).gqa_enabled(p.kernel):
        yield Problem(
            "kernel.enable_gqa", f"expected true, as q_heads ({hq}) is not kv_heads ({hkv})"
        )


def _empty(p: Program) -> Iterator[Problem]:
    """No batch and no heads, only where kernels take that."""
    nothing = plugin_of(p).takes_nothing
    batches = {p.shape.batch, *(call.batch for call in p.calls)}
    for key, extent, empty in (
        ("shape.batch", "batch", 0 in batches), ("shape.q_heads", "heads", not p.shape.q_heads),
    ):  # fmt: skip
        if empty and extent not in nothing:
            yield Problem(key, f"expected at least 1: {p.kernel.kind} takes none that are empty")
        if empty and (p.surround.projections or p.mesh is not None or p.transform != "none"):
            yield Problem(key, "expected at least 1 with projections, a mesh or a transform")


def _layout(key: str, layout: Layout) -> Iterator[Problem]:
    if sorted(layout.order) != [0, 1, 2, 3]:
        yield Problem(f"{key}.order", f"expected a permutation of 0, 1, 2, 3, got {layout.order}")
    if len(set(layout.expand)) != len(layout.expand):
        yield Problem(f"{key}.expand", f"expected distinct dimensions, got {layout.expand}")
    for dim in layout.expand:
        if layout.pad[dim] or layout.start[dim] or layout.step[dim] != 1:
            yield Problem(
                f"{key}.expand",
                f"expected no pad, start or step at dimension {dim}, which is stored once",
            )
    whole = not any((*layout.pad, *layout.start)) and max(layout.step) == 1
    if layout.unread == "nan" and whole:
        yield Problem(f"{key}.unread", "expected values: without pad, start or step all is read")


def _layouts(p: Program) -> Iterator[Problem]:
    for name in ("q", "k", "v"):
        yield from _layout(f"{name}.layout", getattr(p, name).layout)


def _packed(p: Program) -> Iterator[Problem]:
    if p.packed == "none":
        return
    first, *others = ("q", "k", "v") if p.packed == "qkv" else ("k", "v")
    model = getattr(p, first)
    for name in others:
        if getattr(p, name).dtype != model.dtype:
            yield Problem(f"{name}.dtype", f"expected {first}'s, as both are views of one buffer")
        if getattr(p, name).values != model.values:
            yield Problem(f"{name}.values", f"expected {first}'s, as both are views of one buffer")
    for name in (first, *others):
        layout = getattr(p, name).layout
        if name != first and layout != Layout():
            yield Problem(f"{name}.layout", f"expected the default, as {name} is packed")
        elif layout.expand:
            yield Problem(f"{name}.layout.expand", f"expected none, as {name} is packed")
        elif name != "q" and layout.order != Layout().order:
            yield Problem(f"{name}.layout.order", "expected the default: the buffer has q's")
    if p.shape.v_head_dim not in (None, p.shape.head_dim):
        yield Problem(
            "shape.v_head_dim", f"expected head_dim ({p.shape.head_dim}), as k and v are packed"
        )
    if p.packed == "qkv":
        for key, q_len, kv_len in lengths(p):
            if q_len != kv_len:
                yield Problem(
                    f"{key}.kv_len", f"expected q_len ({q_len}), as q, k and v are packed"
                )


def _nan_values(p: Program) -> Iterator[Problem]:
    for name in ("q", "v"):
        if getattr(p, name).values == "nan_at_masked":
            yield Problem(f"{name}.values", "expected no nan_at_masked: it is for k only")
    yield from _not_finite(p)
    if p.k.values != "nan_at_masked":
        return
    if p.mask is None or not plugin_of(p).selects_masked(p.kernel):
        yield Problem(
            "k.values", "expected a mask that is selected, not added, to go with nan_at_masked"
        )
    if p.training is not None or p.transform != "none" or p.surround.projections:
        yield Problem(
            "k.values",
            "expected no training, transform or projections with nan_at_masked (0 * NaN is NaN)",
        )


def _not_finite(p: Program) -> Iterator[Problem]:
    """A mask that is added leaves NaN and infinities at the keys that it hides, and gradients
    multiply them by zeros: who has computed what is then no matter of its meaning. A query that is
    NaN and sees a key gives NaN either way."""
    for name in ("q", "k", "v"):
        values = getattr(p, name).values
        if values not in ("nan", "inf"):
            continue
        row = name == "q" and values == "nan" and every_row_sees(p.mask)
        if p.mask is not None and not row and not plugin_of(p).selects_masked(p.kernel):
            yield Problem(f"{name}.values", f"expected no {values} with a mask that is added")
        if p.training is not None or p.transform != "none" or p.surround.projections:
            yield Problem(
                f"{name}.values", f"expected no {values} with training, transform or projections"
            )


def _surround(p: Program) -> Iterator[Problem]:
    if p.surround.rope and p.shape.head_dim % 2:
        yield Problem("surround.rope", f"expected an even head_dim, got {p.shape.head_dim}")
    if p.surround.rope_interleaved and not p.surround.rope:
        yield Problem("surround.rope_interleaved", "expected false where there is no rope")
    if p.surround.checkpoint != "none" and p.transform != "none":
        yield Problem("transform", "expected none within a checkpoint")
    yield from _epilogue(p)
    if not p.surround.projections:
        return
    if p.packed != "none":
        yield Problem("packed", "expected none: projections make q, k and v")
    for name in ("q", "k", "v"):
        if getattr(p, name).layout != Layout():
            yield Problem(f"{name}.layout", "expected the default: projections make q, k and v")
    for name in ("k", "v"):
        for field in ("dtype", "values"):
            if getattr(getattr(p, name), field) != getattr(p.q, field):
                yield Problem(
                    f"{name}.{field}", f"expected q's ({getattr(p.q, field)}): all come from one x"
                )
    if p.transform != "none":
        yield Problem("transform", "expected none with projections")


def _epilogue(p: Program) -> Iterator[Problem]:
    epilogue = p.surround.epilogue
    if epilogue in ("residual", "gated") and p.shape.v_head_dim not in (None, p.shape.head_dim):
        yield Problem("surround.epilogue", f"expected v_head_dim = head_dim for {epilogue}")
    moved = not plugin_of(p).keeps_layout(p.kernel)
    if epilogue != "none" and moved and not p.surround.projections:
        yield Problem("surround.epilogue", "expected none, or an out_layout of bhld")


def _layers(p: Program) -> Iterator[Problem]:
    """Layers add what one gives to q, and a region is part of what dynamo compiles."""
    around, compiled = p.surround, p.compile
    if around.layers == 1 and not around.region:
        return
    key = "surround.region" if around.region else "surround.layers"
    if around.region and compiled is None:
        yield Problem(key, "expected false without compile")
    for other, wrong in (
        ("transform", p.transform != "none"),
        ("mesh", p.mesh is not None),
        ("training.double", p.training is not None and p.training.double),
        ("compile.via", around.region and compiled is not None and compiled.via != "compile"),
        ("surround.integration", around.region and around.integration == "disable"),
    ):
        if wrong:
            yield Problem(other, f"expected the default with {key}")
    if around.layers == 1:
        return
    plugin = plugin_of(p)
    if not plugin.wrappable(p.kernel) and not plugin.takes_score_mod:
        yield Problem("surround.layers", "expected 1, or SDPA, flex, by hand or a function")
    if plugin.returns_lse(p.kernel):
        yield Problem("kernel.return_lse", "expected false with several layers")
    if p.shape.v_head_dim not in (None, p.shape.head_dim):
        yield Problem("shape.v_head_dim", "expected head_dim with several layers")
    if not plugin.keeps_layout(p.kernel) and not p.surround.projections:
        yield Problem("surround.layers", "expected 1, or an out_layout of bhld")


def _integration(p: Program) -> Iterator[Problem]:
    """Any but the plain call hands tensors to a function of q, k, v and a mask, and training takes
    the gradients of a plain softmax."""
    style, plugin = p.surround.integration, plugin_of(p)
    if style == "direct":
        return
    if not plugin.wrappable(p.kernel):
        yield Problem("surround.integration", "expected direct, or SDPA, by hand or a function")
    if len({p.q.dtype, p.k.dtype, p.v.dtype}) > 1:
        yield Problem("surround.integration", "expected direct, or q, k and v of one dtype")
    for key, wrong in (
        ("transform", p.transform != "none"),
        ("autocast", p.autocast is not None),
        ("mesh", p.mesh is not None),
        ("training.double", p.training is not None and p.training.double),
        ("kernel.mask_requires_grad", plugin.learns_mask(p.kernel)),
    ):
        if wrong:
            yield Problem(key, f"expected none with surround.integration {style}")
    if p.training is not None and p.shape.q_heads != p.shape.kv_heads:
        yield Problem("shape.q_heads", f"expected kv_heads ({p.shape.kv_heads}) to train {style}")
    if style == "disable" and p.compile is not None and p.compile.fullgraph:
        yield Problem("compile.fullgraph", "expected false where the kernel is not to be compiled")


def _score_mod(p: Program) -> Iterator[Problem]:
    if p.score_mod is not None and not plugin_of(p).takes_score_mod:
        yield Problem(
            "score_mod", f"expected none: only flex takes one, the kernel is {p.kernel.kind}"
        )


def _kernel(p: Program) -> Iterator[Problem]:
    yield from plugin_of(p).problems(p)


def _gradients(p: Program) -> Iterator[Problem]:
    if p.training is None:
        if p.grad_mode != "default" and p.transform in ("grad", "jvp"):
            yield Problem("grad_mode", f"expected default: {p.transform} takes derivatives")
        return
    if p.transform != "none":
        yield Problem("transform", "expected none: training takes the gradients")
    if p.grad_mode != "default":
        yield Problem("grad_mode", "expected default: training takes gradients")
    if len(set(p.training.wrt)) != len(p.training.wrt):
        yield Problem("training.wrt", f"expected distinct names, got {p.training.wrt}")
    if not p.training.wrt and not learnable(p):
        yield Problem("training.wrt", "expected at least one of q, k, v: nothing has a gradient")
    if no_gradient(p):
        yield Problem("training.wrt", "expected more: out or lse depends on none of them")
    if p.training.double and p.surround.checkpoint == "reentrant":
        yield Problem("training.double", "expected false: reentrant checkpoints allow one backward")


def no_gradient(p: Program) -> bool:
    """Whether a result depends on nothing that gets a gradient: on v alone where the score is
    ignored, and the log-sum-exp on q and k alone, or on nothing."""
    if p.training is None or learnable(p):
        return False
    wrt = {"q", "k", "v"} if p.surround.projections else {*p.training.wrt}
    ignored = p.score_mod is not None and not uses_score(p.score_mod)
    lse = learns_lse(p)
    return (ignored and "v" not in wrt) or (lse and (ignored or not wrt & {"q", "k"}))


def learnable(p: Program) -> bool:
    """Whether something has a gradient that is not q, k or v: a parameter, the mask or a table."""
    plugin = plugin_of(p)
    if plugin.learns(p.kernel) or (p.mask is not None and plugin.learns_mask(p.kernel)):
        return True
    return has_learnable(p.score_mod)


def _table(key: str, table: Table, dtypes: tuple[str, ...]) -> Iterator[Problem]:
    if table.dtype not in dtypes:
        yield Problem(f"{key}.dtype", f"expected one of {', '.join(dtypes)}, got {table.dtype}")
    family = "bool" if table.dtype == "bool" else "float" if table.dtype in FLOATS else "integer"
    if table.init not in FILLS[family]:
        yield Problem(
            f"{key}.init", f"expected one of {', '.join(FILLS[family])} for {table.dtype}"
        )
    if table.init == "sorted" and not table.axes:
        yield Problem(f"{key}.init", "expected not sorted: a 0-d table has no order")
    if len(set(table.axes)) != len(table.axes):
        yield Problem(f"{key}.axes", f"expected distinct axes, got {table.axes}")
    if len(set(table.unit)) != len(table.unit):
        yield Problem(f"{key}.unit", f"expected distinct positions, got {table.unit}")
    for position in table.unit:
        if position >= len(table.axes):
            yield Problem(
                f"{key}.unit", f"expected positions below {len(table.axes)}, got {position}"
            )


def _expressions(p: Program) -> Iterator[Problem]:
    for root, tree in (("mask", p.mask), ("score_mod", p.score_mod)):
        for path, node in nodes(tree):
            yield from _operator(f"{root}{path}", node)
            yield from _lookup(f"{root}{path}.table", node)
    if p.score_mod is not None and is_constant(p.score_mod):
        yield Problem("score_mod", "expected a tensor: a constant is not one")


def _lookup(key: str, node: object) -> Iterator[Problem]:
    match node:
        case IntLookup(table=table):
            yield from _table(key, table, INTEGERS)
        case TableMask(table=table):
            yield from _table(key, table, ("bool", *INTEGERS))
        case FloatLookup(table=table):
            yield from _table(key, table, FLOATS)


def _operator(key: str, node: object) -> Iterator[Problem]:
    """What torch's operators take: a tensor somewhere, both tensors for minimum and maximum, no
    booleans in subtractions and functions; and divisors that are constants other than 0."""
    match node:
        case IntBinary(op="//" | "%" as op, right=right):
            if not isinstance(right, IntConst) or right.value == 0:
                yield Problem(f"{key}.right", f"expected a nonzero constant after {op}")
        case FloatBinary(op="/", right=right):
            if not isinstance(right, FloatConst) or right.value == 0:
                yield Problem(f"{key}.right", "expected a nonzero constant after /")
    match node:
        case IntBinary(left=left, right=right) | FloatBinary(left=left, right=right):
            sides = {"left": left, "right": right}
            constant = [name for name, side in sides.items() if is_constant(side)]
            if len(constant) == 2 or (constant and node.op in ("minimum", "maximum")):
                yield Problem(f"{key}.{constant[0]}", f"expected a tensor for {node.op}")
            if node.op in ("-", "minimum", "maximum"):
                for name in (name for name, side in sides.items() if is_boolean(side)):
                    yield Problem(f"{key}.{name}", f"expected a number for {node.op}, not a truth")
        case Compare(left=left, right=right):
            if is_constant(left) and is_constant(right):
                yield Problem(f"{key}.left", "expected an index or a table on one side")
        case FloatCall(inner=inner) | Softcap(inner=inner):
            if is_constant(inner):
                yield Problem(f"{key}.inner", "expected a tensor")
            elif isinstance(node, FloatCall) and is_boolean(inner):
                yield Problem(f"{key}.inner", f"expected a number for {node.function}")


RULES: tuple[Rule, ...] = (
    _heads, _layouts, _packed, _nan_values, _surround, _layers, _integration, mesh_problems,
    _score_mod, _kernel, *compiling.RULES, _empty, _gradients, _expressions, dropout_problems,
    changing_problems,
)  # fmt: skip
