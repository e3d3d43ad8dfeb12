"""SDPA called on tensors of two, three or five dimensions: what is handed over, and the way back.

torch documents q as `[N, ..., Hq, L, E]`: the heads are but the last of the batch dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import Scene


def arguments(scene: Scene, spec: Sdpa, masked: bool) -> tuple[list[str], str]:
    """The tensors that SDPA is called with, and what makes its result `[B, Hq, Lq, Dv]` again."""
    match spec.input_rank:
        case 2:
            q, kv, back = "[0, 0]", "[0, 0]", "[None, None]"
        case 3:
            q = kv = ".flatten(0, 1)"
            back = f".unflatten(0, ({scene.batch}, {scene.q_heads}))"
        case 5:
            q, kv = f".unflatten(1, ({scene.kv_heads}, {scene.group}))", "[:, :, None]"
            back = ".flatten(1, 2)"
        case _:
            q = kv = back = ""
    names = [f"q{q}", f"k{kv}", f"v{kv}"]
    if masked:
        names.append(f"attn_mask=attn_mask{_of_mask(scene, spec)}")
    return names, back


def _of_mask(scene: Scene, spec: Sdpa) -> str:
    """What makes `attn_mask` go with q, k and v."""
    rank, fixed = spec.mask_rank, {"b", "h"} - set(spec.broadcast)
    if spec.mask_form not in ("bool", "float") or rank < 3:
        return ""
    if spec.mask_layout == "expanded":
        fixed = {"b", "h"}
    match spec.input_rank:
        case 2:
            return "[0, 0]" if rank == 4 else "[0]"
        case 3 if fixed:
            whole = f".expand({scene.batch}, {scene.q_heads}, -1, -1)"
            return ("" if rank == 4 and len(fixed) == 2 else whole) + ".flatten(0, 1)"
        case 3:
            return ".flatten(0, 1)" if rank == 4 else ""
        case 5 if "h" in fixed:
            return f".unflatten({rank - 3}, ({scene.kv_heads}, {scene.group}))"
        case 5:
            return "[:, :, None]" if rank == 4 else "[:, None]"
    return ""


def problems(p: Program, kernel: Sdpa) -> Iterator[Problem]:
    """What the rank of q, k and v needs of the rest."""
    if kernel.mask_rank == 1 and kernel.input_rank == 4:
        yield Problem("kernel.mask_rank", "expected 2 or more with q, k and v of four dimensions")
    if kernel.input_rank != 2:
        return
    for key, batch in (
        ("shape", p.shape.batch), *((f"calls[{i}]", c.batch) for i, c in enumerate(p.calls))
    ):  # fmt: skip
        if batch != 1:
            yield Problem(f"{key}.batch", "expected 1 where kernel.input_rank is 2")
    if p.shape.q_heads != 1 or kernel.enable_gqa:
        yield Problem("shape.q_heads", "expected 1, without groups, where kernel.input_rank is 2")
