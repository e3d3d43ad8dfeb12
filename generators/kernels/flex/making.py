"""How a program's BlockMask is created, and for which extents."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.flex import journey, paging, write_order
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.captures import Extents
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas, largest, plus


def built_extents(scene: Scene, spec: BlockMaskSpec) -> Extents:
    """What the BlockMask is built for."""
    q_extra, kv_extra = spec.built_for_extra
    first = journey.extents_before(spec, scene.extents)
    built = Extents(
        plus(first.b, spec.spare_batch), first.h,
        plus(first.q_idx, q_extra), plus(first.kv_idx, kv_extra),
    )  # fmt: skip
    return Extents(*(plus(size, more) for size, more in zip(built, spec.other, strict=True)))


def reached_extents(scene: Scene, spec: BlockMaskSpec) -> Extents:
    """How far the mask's tables must reach: as far as it is built, and as far as it is used."""
    if spec.paged is not None:
        return paging.reached(spec, scene.extents)
    built = built_extents(scene, spec)
    pairs = zip(built, scene.extents, strict=True)
    return Extents(*map(largest, *zip(*pairs, strict=True))) if any(spec.other) else built


def block_mask(made: str, spec: BlockMaskSpec, scene: Scene, device: str) -> list[str]:
    """Statements that set `block_mask`."""
    built = built_extents(scene, spec)
    if spec.paged is not None and spec.paged.converted == "mask_mod":
        made = paging.converted_mod(made, spec, "mask_mod")
        built = built._replace(kv_idx=paging.slots(spec, scene.extents))
    first = journey.extents_before(spec, scene.extents)
    args = [
        made, str(built.b) if spec.batch else "None", str(built.h) if spec.heads else "None",
        str(built.q_idx), str(built.kv_idx), f'device="{device}"',
    ]  # fmt: skip
    rows, columns = spec.block_size
    if spec.block_size != (128, 128):
        args.append(f"BLOCK_SIZE={rows if rows == columns else spec.block_size}")
    if spec.compiled:
        args.append("_compile=True")
    if not spec.full_blocks:
        args.append("separate_full_blocks=False")
    args += write_order.arguments(spec)
    statements = []
    if spec.spare_batch and made != "mask_mod":
        statements.append(f"mask_mod = {made}")
        args[0] = "mask_mod"
    create = "torch.compile(create_block_mask)" if spec.compiled_call else "create_block_mask"
    created = f"block_mask = {create}({', '.join(args)})"
    adjusted = f"._adjust({commas((first.q_idx, first.kv_idx))})"
    if not spec.spare_batch:
        return [*statements, created + (adjusted if any(spec.built_for_extra) else "")]
    statements += [created, f"block_mask = block_mask[:{first.b}]"]
    statements.append("block_mask.mask_mod = mask_mod  # slicing drops it")
    if any(spec.built_for_extra):
        statements.append(f"block_mask = block_mask{adjusted}")
    return statements


def other_problems(p: Program, spec: BlockMaskSpec) -> Iterator[Problem]:
    """What a BlockMask for other extents than the call's needs and is not so."""
    if not any(spec.other):
        return
    key, shape = "kernel.block_mask.other", p.shape
    own = (shape.batch, shape.q_heads, shape.q_len, shape.kv_len)
    if any(extent + more < 1 for extent, more in zip(own, spec.other, strict=True) if more):
        yield Problem(key, "expected no less than one of each")
    for name, more, there in (
        ("batch", spec.other[0], spec.batch), ("heads", spec.other[1], spec.heads),
    ):  # fmt: skip
        if more and not there:
            yield Problem(key, f"expected 0 for {name}: the mask is built for none")
    if p.calls or p.mesh is not None:
        yield Problem(key, "expected zeros with several calls or a mesh")
    if spec.steps or spec.spare_batch or any(spec.built_for_extra):
        yield Problem(key, "expected zeros where the mask is cut afterwards")
