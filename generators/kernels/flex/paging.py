"""Keys and values in the pages of torch's own `PagedAttention`: what is written, and where.

The class is `torch.nn.attention.experimental._paged_attention.PagedAttention`. What it means is
attention to the keys and values themselves: a reference knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.flex.paged import Paged
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.captures import Extents
from attnfuzz.generators.render.devices import beside
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import Size, blocks, commas, plus, product, times

FINITE = ("normal", "tiny", "large", "huge", "zeros", "ones", "one_hot", "negative", "denormal")
"""Values that leave nothing where their weight is 0: a batch entry's v lies beside another's."""


def pages(spec: BlockMaskSpec, call: Extents) -> Size:
    """How many pages there are."""
    assert spec.paged is not None
    needed = product((call.b, blocks(call.kv_idx, spec.block_size[1])))
    # Before q's entries get theirs, others hold one each, or they did themselves.
    return plus(needed, spec.paged.spare + spec.paged.first)


def pages_are_full(p: Program, spec: BlockMaskSpec) -> bool:
    """Whether k fills its pages in every call."""
    return not any(kv_len % spec.block_size[1] for _, _, kv_len in lengths(p))


def slots(spec: BlockMaskSpec, call: Extents) -> Size:
    """How many tokens the cache has room for."""
    count, page = pages(spec, call), spec.block_size[1]
    return times(count if isinstance(count, int) else "paged.n_pages", page)


def reached(spec: BlockMaskSpec, call: Extents) -> Extents:
    """How far tables of the mods must reach: pages are looked at to their end, and a page before
    the first token, where torch calls the mods too, for other entries' pages."""
    if spec.paged is None:
        return call
    page = spec.block_size[1]
    return call._replace(kv_idx=times(blocks(plus(call.kv_idx, page), page), page))


def reserved(spec: BlockMaskSpec, scene: Scene) -> list[str]:
    """Statements that make `paged`, in which each entry has its pages, and perhaps `kv_len`."""
    paged, call, page = spec.paged, scene.extents, spec.block_size[1]
    assert paged is not None
    entries = plus(call.b, paged.first)
    lines = [
        f"paged = PagedAttention({pages(spec, call)}, {page}, {entries}, "
        f'device="{scene.inputs_device}")'
    ]
    own = (paged.first, entries)
    lines += _for_entries((0, paged.first), f"reserve({{}}, torch.tensor([{page}]))")
    if paged.erased:
        lines += _for_entries(own, f"reserve({{}}, torch.tensor([{page}]))")
        lines += _for_entries(own, "erase({})")
    tokens = "tokens" if paged.parts == 2 else call.kv_idx
    loop = _for_entries(own, f"reserve({{}}, torch.tensor([{tokens}]))")
    if paged.parts == 2:
        lines.append(f"for tokens in ({_half(call.kv_idx)}, {call.kv_idx}):")
        loop = [f"    {line}" for line in loop]
    lines += loop
    if paged.kv_len:
        lines.append(f"kv_len = torch.full(({call.b},), {call.kv_idx})")
    return lines


def _half(length: Size) -> Size:
    return length // 2 if isinstance(length, int) else f"{length} // 2"


def _for_entries(which: tuple[int, Size], call: str) -> list[str]:
    """`call` for the entries from the first number up to the other: without a loop for one."""
    first, end = which
    if isinstance(end, int) and end - first < 2:
        return [f"paged.{call.format(f'torch.tensor([{entry}])')}" for entry in range(first, end)]
    entries = f"range({commas((first, end)) if first else end})"
    return [f"for entry in {entries}:", f"    paged.{call.format('torch.tensor([entry])')}"]


def names(spec: BlockMaskSpec, scene: Scene) -> list[str]:
    """The names of what `reserved` makes and the attention function needs."""
    assert spec.paged is not None
    converts = spec.paged.kv_len and scene.program.score_mod is not None
    return ["paged", *(["kv_len"] if converts else [])]


def converted_mask(spec: BlockMaskSpec, scene: Scene) -> list[str]:
    """Statements that make `block_mask` one for the cache."""
    paged = spec.paged
    if paged is None or paged.converted == "mask_mod":
        return []
    args = ["block_mask"]
    if paged.first:
        args.append(_entries(paged, scene))
    args += ["kv_len=kv_len"] if paged.kv_len else []
    return [f"block_mask = paged.convert_logical_block_mask({', '.join(args)})"]


def converted_mod(made: str, spec: BlockMaskSpec, kind: str) -> str:
    """The mod `made` for the cache's indices; `kind` is mask_mod or score_mod."""
    if spec.paged is None:
        return made
    args = [made, *(["kv_len"] if spec.paged.kv_len else [])]
    return f"paged.get_{kind}({', '.join(args)})"


def _entries(paged: Paged, scene: Scene, on: str = "") -> str:
    first = f"{paged.first}, " if paged.first else ""
    return f"torch.arange({first}{plus(scene.batch, paged.first)}{on})"


def assigned(spec: BlockMaskSpec, scene: Scene) -> list[str]:
    """Statements in the attention function that write k and v to `k_cache` and `v_cache`."""
    paged, call = spec.paged, scene.extents
    assert paged is not None
    on = beside(scene.device, "q")
    shape = commas((1, scene.kv_heads, slots(spec, call)))
    lines = [
        f"k_cache = k.new_zeros({shape}, {scene.head_dim})",
        f"v_cache = v.new_zeros({shape}, {scene.v_head_dim})",
        f"entries = {_entries(paged, scene, on)}",
        f"positions = torch.arange({call.kv_idx}{on}).expand({call.b}, -1)",
    ]
    if paged.parts == 1:
        return [*lines, "paged.assign(entries, positions, k, v, k_cache, v_cache)"]
    half = _half(call.kv_idx)
    part = "positions[:, part], k[:, :, part], v[:, :, part]"
    return [
        *lines,
        f"for part in (slice({half}), slice({half}, None)):",
        f"    paged.assign(entries, {part}, k_cache, v_cache)",
    ]


def problems(p: Program, spec: BlockMaskSpec) -> Iterator[Problem]:
    """What pages need and is not so."""
    paged, key = spec.paged, "kernel.block_mask"
    if paged is None:
        return
    plain = replace(spec, block_size=(128, 128), heads=False, full_blocks=True, paged=None)
    if plain != type(spec)(batch=True):
        yield Problem(f"{key}.paged", "expected none: the mask is not made outside, for each batch")
    for name, wrong in (
        ("training", p.training is not None),  # "val must not require gradient"
        ("transform", p.transform != "none"),
        ("mesh", p.mesh is not None),
    ):
        if wrong:
            yield Problem(name, "expected none with pages")
    of_v = "q" if p.packed == "qkv" or p.surround.projections else "v"
    if getattr(p, of_v).values not in FINITE:
        yield Problem(f"{of_v}.values", "expected finite ones: entries share the cache of v")
    extents = [size for _, *pair in lengths(p) for size in pair]
    if 0 in (p.shape.batch, p.shape.q_heads, *(call.batch for call in p.calls), *extents):
        yield Problem(f"{key}.paged", "expected none where there is no batch, query or key")
    if not paged.kv_len and not pages_are_full(p, spec):
        yield Problem(f"{key}.paged.kv_len", "expected true: the last page is not full")
