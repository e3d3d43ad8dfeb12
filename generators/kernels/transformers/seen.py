"""Which key a query sees: asked of transformers, and written down from what its documentation
says."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels import padding
from attnfuzz.generators.kernels.base import Inputs
from attnfuzz.generators.kernels.packing import cuts
from attnfuzz.generators.kernels.transformers.spec import Transformers
from attnfuzz.generators.render.captures import Extents
from attnfuzz.generators.render.masks import boolean
from attnfuzz.generators.render.mods import Mod
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import total

CREATE = {
    "causal": "create_causal_mask",
    "sliding": "create_sliding_window_causal_mask",
    "chunked": "create_chunked_causal_mask",
    "bidirectional": "create_bidirectional_mask",
    "bidirectional_sliding": "create_bidirectional_sliding_window_mask",
}


def causal(spec: Transformers) -> bool:
    """Whether a query sees no later key, but for blocks and the program's own mask."""
    return not spec.pattern.startswith("bidirectional")


def some_see_nothing(scene: Scene, spec: Transformers) -> bool:
    """Whether a query may see no key: at padding, and by the program's mask."""
    hidden = spec.overlay == "and" and scene.program.mask is not None
    return hidden or spec.padding != "none" or any(0 in pair for pair in scene.lengths)


def add(scene: Scene, spec: Transformers, inputs: Inputs) -> None:
    """Adds what a mask is made of to `inputs`, and the mask `seen` (`[…, Lq, Lkv]`, True where a
    key is seen) that is meant by it."""
    inputs.statements += _made_of(scene, spec, inputs)
    if scene.program.mask is not None:
        mod = _mask_mod(scene, spec)
        inputs.mods.append(mod)
        if not mod.is_function:
            inputs.statements += [*mod.statements, f"mask_mod = {mod.made}"]
            inputs.arguments.append("mask_mod")
    inputs.statements += _meaning(scene, spec)
    inputs.arguments.append("seen")
    inputs.meant = () if some_see_nothing(scene, spec) else ("seen",)


def _made_of(scene: Scene, spec: Transformers, inputs: Inputs) -> Iterator[str]:
    if spec.padding != "none":
        yield f"kept = {padding.kept(scene.kv_len, scene.batch)}[:, None]"
        position = f"torch.arange({scene.kv_len})"
        after = "< kept" if spec.padding == "right" else f">= {scene.kv_len} - kept"
        yield f"attention_mask = {position} {after}"
        inputs.arguments.append("attention_mask")
    if spec.sequences > 1:
        yield f"starts = torch.tensor({cuts(scene.kv_len, spec.sequences)})"
        position = f"torch.arange({scene.kv_len})"
        yield f"sequence = torch.bucketize({position}, starts[1:], right=True)"
        yield f"position_ids = ({position} - starts[sequence])[None]"
        inputs.arguments.append("position_ids")
    if spec.block:
        yield f"run = torch.arange({scene.kv_len}) // {spec.block}"
        ids = f"torch.where(run % 2 == 1, run, -1).expand({scene.batch}, -1)"
        yield f"block_sequence_ids = {ids}"
        inputs.arguments.append("block_sequence_ids")


def _mask_mod(scene: Scene, spec: Transformers) -> Mod:
    """The program's mask, for queries that may be as far along as keys: transformers asks it of
    every place in a static cache, spare ones too."""
    mask, here = scene.program.mask, scene.extents
    assert mask is not None
    places = total(here.kv_idx, spec.spare)
    captures = scene.captures(Extents(here.b, here.h, places, places), dense=True)
    expr = boolean(mask, captures)
    return Mod("mask_mod", expr, tuple(captures.captured), frozenset(), "function")


def _meaning(scene: Scene, spec: Transformers) -> Iterator[str]:
    """Statements that set `seen`."""
    q_len, kv_len = scene.q_len, scene.kv_len
    row = f"torch.arange({q_len})[:, None]"
    yield f"q_idx = {row}" if spec.cache == "none" else f"q_idx = {row} + {kv_len} - {q_len}"
    yield f"kv_idx = torch.arange({kv_len})"
    if spec.pattern == "chunked" and spec.padding == "left":
        first = f"({kv_len} - attention_mask.sum(dim=-1))[:, None, None, None]"
        yield f"first = {first}"
    seen = _pattern(spec)
    for each in _further(scene, spec):
        seen = f"({seen}) {each}" if " " in seen else f"{seen} {each}"
    yield f"seen = {seen}"


def _pattern(spec: Transformers) -> str:
    """The pattern, as an expression of q_idx and kv_idx. In packed sequences, positions that are
    compared within one are as far apart as in the whole; chunks count from its beginning."""
    q, kv = "q_idx", "kv_idx"
    if spec.pattern == "chunked":
        origin = "first" if spec.padding == "left" else ""
        if origin:
            q, kv = f"(q_idx - {origin})", f"(kv_idx - {origin})"
        if spec.sequences > 1:
            q, kv = "position_ids.mT", "position_ids"
    return {
        "causal": "kv_idx <= q_idx",
        "sliding": f"(kv_idx <= q_idx) & (kv_idx > q_idx - {spec.window})",
        "chunked": f"(kv_idx <= q_idx) & ({kv} // {spec.window} == {q} // {spec.window})",
        "bidirectional": "q_idx + kv_idx >= 0",
        "bidirectional_sliding": f"(kv_idx - q_idx).abs() <= {spec.window}",
    }[spec.pattern]


def _further(scene: Scene, spec: Transformers) -> Iterator[str]:
    """What is added to the pattern, each an operator and its right side."""
    if scene.program.mask is not None:
        batch = f"torch.arange({scene.batch})[:, None, None, None]"
        yield f"{'&' if spec.overlay == 'and' else '|'} mask_mod({batch}, 0, q_idx, kv_idx)"
    if spec.sequences > 1:
        yield "& (sequence[:, None] == sequence)"
    if spec.block:
        yield "| ((run[q_idx] == run) & (run % 2 == 1))"
    if spec.padding != "none":
        yield "& attention_mask[:, None, None, :]"
