"""The statements that make q, k, v (or x, the context and the weights) with layout and values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.program import Input, Layout
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import Size, commas, plus, times, tuple_of

Shape = tuple[Size, ...]

SELDOM = 0.005
"""How many entries of `nan` and `inf` are that."""

DENORMAL = {"float32": "1e-40", "bfloat16": "1e-40", "float16": "1e-6", "float64": "1e-310"}
"""By dtype, a factor that takes normal numbers below the smallest normal one."""


def storage(values: str, shape: Shape, dtype: str) -> str:
    """A contiguous tensor of `shape` filled as `Input.values` says, as an expression.

    `nan_at_masked` starts as standard normal."""
    where, kind = commas(shape), dtype_argument(dtype)
    normal = f"torch.randn({where}{kind})"
    match values:
        case "zeros" | "ones":
            return f"torch.{values}({where}{kind})"
        case "one_hot":
            cast = f".to(torch.{dtype})" if dtype != "float32" else ".float()"
            return f"8 * (torch.rand({where}) < 0.1){cast}"
        case "tiny" | "large" | "huge":
            factor = {"tiny": "1e-4", "large": "8", "huge": "100"}[values]
            return f"{factor} * {normal}"
        case "negative":
            return f"-8 * torch.rand({where}{kind})"
        case "denormal":
            return f"{DENORMAL[dtype]} * {normal}"
        case "nan":
            return f"torch.where(torch.rand({where}) < {SELDOM}, torch.nan, {normal})"
        case "inf":
            return f"{normal} / (torch.rand({where}) >= {SELDOM})"
    return normal


def stored(layout: Layout, shape: Shape) -> Shape:
    """The storage's extents, in the order in which they lie in memory."""
    extents: list[Size] = []
    for dim in layout.order:
        extent = 1 if dim in layout.expand else times(shape[dim], layout.step[dim])
        extents.append(plus(extent, layout.start[dim] + layout.pad[dim]))
    return tuple(extents)


def view(layout: Layout, shape: Shape) -> str:
    """The methods that turn the storage into the tensor `[B, H, L, D]`, expansion left out."""
    return permutation(layout.order) + _slices(layout, shape)


def permutation(order: tuple[int, ...]) -> str:
    """What brings storage dimensions in `order` back to 0, 1, 2, 3."""
    moved = [dim for dim, stored_dim in enumerate(order) if dim != stored_dim]
    if not moved:
        return ""
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(str(order.index(dim)) for dim in range(len(order)))})"


def _slices(layout: Layout, shape: Shape) -> str:
    parts = []
    for dim, size in enumerate(shape):
        start, step, pad = layout.start[dim], layout.step[dim], layout.pad[dim]
        length = 1 if dim in layout.expand else times(size, step)
        stop = str(plus(length, start)) if pad else ""
        text = f"{start or ''}:{stop}" + (f":{step}" if step > 1 else "")
        parts.append(text)
    while parts and parts[-1] == ":":
        parts.pop()
    return f"[{', '.join(parts)}]" if parts else ""


def expansion(layout: Layout, shape: Shape) -> str:
    """The call that expands a tensor to `shape`; nothing where the layout expands no dimension."""
    return f".expand({commas(shape)})" if layout.expand else ""


def tensor(entry: Input, layout: Layout, shape: Shape, expands: bool = True) -> str:
    """The whole expression: values in a storage laid out as `layout` says; `expands` to `shape`."""
    views, extents = view(layout, shape), stored(layout, shape)
    last = expansion(layout, shape) if expands else ""
    if layout.unread == "nan":
        inside = tuple(1 if dim in layout.expand else size for dim, size in enumerate(shape))
        kind = dtype_argument(entry.dtype)
        values = storage(entry.values, inside, entry.dtype)
        return f"torch.full({tuple_of(extents)}, torch.nan{kind}){views}.copy_({values}){last}"
    base, views = storage(entry.values, extents, entry.dtype), views + last
    return f"({base}){views}" if views and is_operation(base) else base + views


def is_operation(text: str) -> bool:
    """Whether an expression needs parentheses before a method can be called on it."""
    depth = 0
    for character in text:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == " " and not depth:
            return True
    return False


def attention_inputs(scene: Scene) -> list[str]:
    """Statements for q, k and v, `requires_grad` set. A k that is to have NaN is not yet expanded:
    `nan_statements` does that once the mask is there."""
    p = scene.program
    shapes: dict[str, Shape] = {
        "q": (scene.batch, scene.q_heads, scene.q_len, scene.head_dim),
        "k": (scene.batch, scene.kv_heads, scene.kv_len, scene.head_dim),
        "v": (scene.batch, scene.kv_heads, scene.kv_len, scene.v_head_dim),
    }
    grads = set(p.training.wrt) if p.training else set()
    plugin = plugin_of(p)
    handed, taken = plugin.handed_over(p.kernel), plugin.takes(p.kernel)
    lines: list[str] = []
    packed = {"none": (), "kv": ("k", "v"), "qkv": ("q", "k", "v")}[p.packed]
    for name, shape in shapes.items():
        if name in packed or name not in taken:
            continue
        entry: Input = getattr(p, name)
        lines.append(f"{name} = {_separate(entry, shape, name in grads, handed)}")
    if packed:
        lines.append(f"{', '.join(packed)} = {_packed(scene, packed)}")
        lines += [f"{name}.requires_grad_()" for name in packed if name in grads]
    return lines


def _separate(entry: Input, shape: Shape, grad: bool, handed: str) -> str:
    text = tensor(entry, entry.layout, shape, expands=entry.values != "nan_at_masked")
    swap = ".transpose(1, 2)"
    if handed.startswith(swap) and text.endswith(swap):  # what is stored so is handed over so
        text, handed = text.removesuffix(swap), handed.removeprefix(swap)
    if handed:
        text = f"({text}){handed}" if is_operation(text) else text + handed
    if not grad:
        return text
    return f"({text}).requires_grad_()" if is_operation(text) else f"{text}.requires_grad_()"


def _packed(scene: Scene, names: tuple[str, ...]) -> str:
    """One buffer whose heads are those of q, k and v (or k and v) side by side."""
    p = scene.program
    entry: Any = p.q if "q" in names else p.k
    heads = [scene.q_heads if name == "q" else scene.kv_heads for name in names]
    shape: Shape = (scene.batch, sum(heads), scene.kv_len, scene.head_dim)
    text = tensor(entry, replace(entry.layout, order=p.q.layout.order), shape)
    if is_operation(text):
        text = f"({text})"
    if len(set(heads)) == 1:
        return f"{text}.chunk({len(heads)}, dim=1)"
    return f"{text}.split({tuple_of(tuple(heads))}, dim=1)"


def nan_statements(scene: Scene, mask_rows: list[str]) -> list[str]:
    """Statements that put NaN into k at keys that no query may see; `mask_rows` set `mask`, bool
    and broadcastable to `[B, Hq, Lq, Lkv]`."""
    p = scene.program
    full = commas((scene.batch, scene.q_heads, scene.q_len, scene.kv_len))
    lines = [*mask_rows, f"unseen = ~mask.expand({full}).any(dim=2)"]
    if scene.group > 1:
        groups = f"({scene.kv_heads}, {scene.group})"
        lines.append(f"unseen = unseen.unflatten(1, {groups}).all(dim=2)")
    shared = [dim for dim in p.k.layout.expand if dim < 3] if p.packed == "none" else []
    for dim in shared:
        lines.append(f"unseen = unseen.all(dim={dim}, keepdim=True)")
    lines.append('k.masked_fill_(unseen[..., None], float("nan"))')
    if p.k.layout.expand and p.packed == "none":
        shape = (scene.batch, scene.kv_heads, scene.kv_len, scene.head_dim)
        lines.append(f"k = k{expansion(p.k.layout, shape)}")
    return lines
