"""Integer expressions and masks as text over `b`, `h`, `q_idx`, `kv_idx`."""

from __future__ import annotations

from attnfuzz.generators.model import indices, masks
from attnfuzz.generators.model.indices import IntExpr, Table
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.render.captures import Captures
from attnfuzz.generators.render.expressions import (
    Expr,
    binary,
    call,
    method,
    number,
    shifted,
    unary,
)
from attnfuzz.generators.render.sizes import Size, blocks, commas, largest, plus, tuple_of

Q, KV = Expr("q_idx"), Expr("kv_idx")


def integer(node: IntExpr, captures: Captures) -> Expr:
    """An integer expression."""
    match node:
        case indices.Index(axis=axis):
            return Expr(axis)
        case indices.IntConst(value=value):
            return number(value)
        case indices.IntArgument():
            return captures.argument()
        case indices.IntLookup(table=table, chained=chained):
            return captures.lookup("table", table, chained)
    left, right = integer(node.left, captures), integer(node.right, captures)
    if node.op in ("minimum", "maximum"):
        return call(f"torch.{node.op}", left, right, kind="int")
    return binary(left, node.op, right)


def distance_within(a: Expr, b: Expr, limit: int) -> Expr:
    """`|a - b| <= limit`."""
    return binary(method(binary(a, "-", b), "abs"), "<=", number(limit))


def boolean(node: Mask, captures: Captures) -> Expr:  # noqa: C901 - a case for each kind of mask
    """A mask as one boolean expression."""
    match node:
        case masks.And(left=left, right=right):
            return binary(boolean(left, captures), "&", boolean(right, captures))
        case masks.Or(left=left, right=right):
            return binary(boolean(left, captures), "|", boolean(right, captures))
        case masks.Not(inner=inner):
            return unary("~", boolean(inner, captures))
        case masks.AllTrue():
            return binary(Q, ">=", number(0))
        case masks.AllFalse():
            return binary(Q, "<", number(0))
        case masks.Causal(offset=offset):
            return binary(shifted(Q, offset), ">=", KV)
        case masks.Single(axis=axis, at=at):
            return binary(Expr(axis), "==", number(at))
        case masks.Compare(op=op, left=left, right=right):
            return binary(integer(left, captures), op, integer(right, captures))
        case masks.TableMask(table=table, chained=chained):
            entry = captures.lookup("table", table, chained)
            return entry if entry.kind == "bool" else binary(entry, "!=", number(0))
        case masks.SlidingWindow():
            return _sliding_window(node)
        case masks.PrefixLM():
            return _prefix_lm(node, captures)
        case masks.Documents():
            return _documents(node, captures)
        case masks.GlobalLocal(tokens=tokens, window=window):
            first = number(tokens)
            everywhere = binary(binary(KV, "<", first), "|", binary(Q, "<", first))
            return binary(everywhere, "|", distance_within(Q, KV, window))
        case masks.BlockMap():
            return _block_map(node, captures)
        case masks.Tree():
            return _tree(node, captures)
        case masks.Natten(width=width, radius=radius):
            row, column = (
                distance_within(binary(Q, op, number(width)), binary(KV, op, number(width)), radius)
                for op in ("//", "%")
            )
            return binary(row, "&", column)
        case masks.KeyPadding():
            return _key_padding(node, captures)
    raise TypeError(f"no rendering for the mask {node!r}")


def _sliding_window(node: masks.SlidingWindow) -> Expr:
    back = binary(Q, "-", KV)
    if node.causal:
        window = binary(binary(Q, ">=", KV), "&", binary(back, "<=", number(node.window)))
    else:
        window = distance_within(Q, KV, node.window)
    if node.dilation == 1:
        return window
    dilated = binary(binary(back, "%", number(node.dilation)), "==", number(0))
    return binary(window, "&", dilated)


def _prefix_lm(node: masks.PrefixLM, captures: Captures) -> Expr:
    prefix = number(node.prefix)
    if node.per_batch:
        table = Table(axes=("b",), limit=node.prefix)
        prefix = captures.lookup("prefix", table, chained=False)
    return binary(binary(KV, "<", prefix), "|", binary(Q, ">=", KV))


def _documents(node: masks.Documents, captures: Captures) -> Expr:
    shape: tuple[Size, ...] = (largest(captures.extents.q_idx, captures.extents.kv_idx),)
    if node.per_batch:
        shape = (captures.extents.b, *shape)
    dtype = "" if node.dtype == "int64" else f", dtype=torch.{node.dtype}"
    ids = f"torch.randint({node.count}, {tuple_of(shape)}{dtype}).sort().values"
    name = captures.add("document", ids)
    batch = "b, " if node.per_batch else ""
    same = binary(Expr(f"{name}[{batch}q_idx]"), "==", Expr(f"{name}[{batch}kv_idx]"))
    if node.causal:
        same = binary(same, "&", binary(Q, ">=", KV))
    if node.shared_prefix:
        same = binary(binary(KV, "<", number(node.shared_prefix)), "|", same)
    return same


def _block_map(node: masks.BlockMap, captures: Captures) -> Expr:
    extents, block = captures.extents, node.block
    shape: tuple[Size, ...] = (blocks(extents.q_idx, block), blocks(extents.kv_idx, block))
    if node.per_head:
        shape = (extents.h, *shape)
    name = captures.add("block_map", f"torch.rand({commas(shape)}) < 0.5", kind="bool")
    head = "h, " if node.per_head else ""
    return Expr(f"{name}[{head}q_idx // {block}, kv_idx // {block}]", kind="bool")


def _tree(node: masks.Tree, captures: Captures) -> Expr:
    size = largest(captures.extents.q_idx, captures.extents.kv_idx)
    enter, leave = captures.pair("enter", "leave", f"tree_intervals({size}, {node.branching})")
    inside = binary(Expr(f"{enter}[kv_idx]"), "<=", Expr(f"{enter}[q_idx]"))
    ends = binary(Expr(f"{leave}[q_idx]"), "<=", Expr(f"{leave}[kv_idx]"))
    return binary(inside, "&", ends)


def _key_padding(node: masks.KeyPadding, captures: Captures) -> Expr:
    shape = (captures.extents.b,) if node.per_batch else ()
    limit = plus(captures.kv_len, 1)
    name = captures.add("length", f"torch.randint({limit}, {tuple_of(shape)})")
    return binary(KV, "<", Expr(f"{name}[b]" if node.per_batch else name))


TREE_INTERVALS = '''\
def tree_intervals(size, branching):
    """Where a depth-first walk enters and leaves each node of a heap-ordered tree."""
    below = [1] * size
    for i in range(size - 1, 0, -1):
        below[(i - 1) // branching] += below[i]
    enter, free = [0] * size, [1] * size
    for i in range(1, size):
        parent = (i - 1) // branching
        enter[i] = free[parent]
        free[parent], free[i] = enter[i] + below[i], enter[i] + 1
    enter, below = torch.tensor(enter, dtype=torch.int64), torch.tensor(below, dtype=torch.int64)
    return enter, enter + below
'''
