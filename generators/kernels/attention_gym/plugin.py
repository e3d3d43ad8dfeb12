"""attention-gym's masks and score modifications for flex_attention, written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.attention_gym.spec import AttentionGym
from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.conditions import differentiates
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec, Flex
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.packing import cuts
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.kernels.system_rules import without
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.mods import mask_mod
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas

CAP = 8
DILATION = 2
BLOCK = 128

FACTORIES = {
    "causal": "causal_mask",
    "sliding_window": "generate_sliding_window({window})",
    "prefix_lm": "generate_prefix_lm_mask({window})",
    "dilated": f"generate_dilated_sliding_window({{window}}, {DILATION})",
    "global_window": "generate_global_sliding_window({window}, is_global)",
    "natten": "generate_natten({canvas}, {rows}, {window}, {window})",
}
WITHIN = {
    "all": "{mod}",
    "documents": "generate_doc_mask_mod({mod}, offsets)",
    "packed": "generate_packed_causal_doc_mask_mod(offsets)",
    "batches": "batchify_mask_mod({mod}, {window})",
}
SCORES = {"alibi": "generate_alibi_bias({heads})", "softcap": f"generate_tanh_softcap({CAP})"}

MEANT = {
    "causal": "kv_idx <= q_idx",
    "sliding_window": "(kv_idx <= q_idx) & (kv_idx >= q_idx - {window})",
    "prefix_lm": "(kv_idx < {window}) | (kv_idx <= q_idx)",
    "dilated": f"((q_idx - kv_idx).abs() <= {{window}}) & ((q_idx - kv_idx) % {DILATION} == 0)",
    "global_window": (
        "((q_idx - kv_idx).abs() <= {window}) | is_global[q_idx] | is_global[kv_idx]"
    ),
}


def trains(program: Program) -> bool:
    """Whether it trains with attention-gym's masks."""
    return isinstance(program.kernel, AttentionGym) and differentiates(program)


class AttentionGymPlugin(KernelPlugin[AttentionGym]):
    """The mask that is meant, `seen`, is an argument of its own for the reference."""

    spec_class = AttentionGym
    package = "attn_gym"
    labels = ("module: flex attention",)
    interchangeable = False
    refusals = (
        Refusal(
            pattern=r"FlexAttention does not support backward on (CPU|MPS)\.",
            why="flex_attention has no backward on this device",
            needs=trains,
        ),
        *AUTOGRAD,
    )

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs(imports=_imports(spec))
        if spec.mask == "global_window":
            inputs.statements.append(f"is_global = torch.arange({scene.q_len}) % 7 == 0")
        if spec.within in ("documents", "packed"):
            bounds = f"torch.tensor({cuts(scene.q_len, spec.sequences)}, dtype=torch.int32)"
            inputs.statements.append(f"offsets = {bounds}")
        if scene.program.mask is not None:
            mod = mask_mod(scene.program.mask, scene, scene.extents, "function")
            inputs.mods.append(mod)
            inputs.statements += mod.statements
            if not mod.is_function:
                inputs.statements.append(f"mask_mod = {mod.made}")
        inputs.statements += [*_seen(spec, scene), _block_mask(spec, scene)]
        inputs.arguments += ["seen", "block_mask"]
        inputs.meant = ("seen",)
        if spec.score != "none":
            made = SCORES[spec.score].format(heads=scene.q_heads)
            inputs.globals.append(f"modify_score = {made}")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        args = ["q", "k", "v", *(["score_mod=modify_score"] if spec.score != "none" else [])]
        args.append("block_mask=block_mask")
        args += [f"scale={spec.scale!r}"] if spec.scale is not None else []
        args += ["enable_gqa=True"] if is_grouped(scene.program) else []
        return Body([f"flex_attention({', '.join(args)})"])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, lines = self.spec(scene.program), []
        if spec.score == "alibi":
            apart = f"torch.arange({scene.kv_len}) - torch.arange({scene.q_len})[:, None]"
            slope = f"torch.exp2(-8 * torch.arange(1, {scene.q_heads + 1}) / {scene.q_heads})"
            lines.append(f"slope = {slope}.to(scores.dtype)")
            lines.append(f"scores = scores + slope[:, None, None] * ({apart})")
        if spec.score == "softcap":
            lines.append(f"scores = {CAP} * torch.tanh(scores / {CAP})")
        lines.append('scores = scores.masked_fill(~seen, float("-inf"))')
        return Meaning(scene.scale_text(spec.scale), lines, scene.program.mask is not None)

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        yield from without(p, "attention_gym")
        if p.calls:
            yield Problem("calls", "expected none with attention_gym")
        for key, q_len, kv_len in lengths(p):
            if not q_len or q_len != kv_len:
                yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}), and at least 1")
        if kernel.within == "packed" and kernel.mask != "causal":
            yield Problem("kernel.mask", "expected causal with kernel.within: packed")
        if kernel.fast and (kernel.mask, kernel.within, p.mask) != ("causal", "all", None):
            yield Problem("kernel.fast", "expected false, or a causal mask alone")
        if kernel.mask == "natten":
            yield from _canvas(p, kernel)

    # How its programs are simplified.

    def features(self, program: Program) -> Iterator[str]:
        kernel = self.spec(program)
        yield from super().features(program)
        if kernel.mask == "natten" and kernel.canvas**2 != program.shape.q_len:
            yield "kernel.attention_gym.oblong"

    def in_blocks(self, kernel: AttentionGym, length: int) -> AttentionGym:
        return changed(kernel, block_size=length)

    def underneath(self, program: Program) -> Iterator[Program]:
        scale = self.spec(program).scale
        masked = Flex(block_mask=BlockMaskSpec(), scale=scale)
        yield changed(program, kernel=Flex(scale=scale), mask=None)
        yield changed(program, kernel=masked, mask=program.mask or Causal())

    def fitted(self, program: Program) -> Program:
        kernel, plain = self.spec(program), AttentionGym()
        if kernel.within not in ("documents", "packed"):
            kernel = changed(kernel, sequences=plain.sequences)
        if kernel.mask != "natten":
            kernel = changed(kernel, canvas=plain.canvas)
        if kernel.mask == "causal" and kernel.within != "batches":
            kernel = changed(kernel, window=plain.window)
        return changed(program, kernel=kernel, score_mod=None)


def _canvas(p: Program, kernel: AttentionGym) -> Iterator[Problem]:
    rows, rest = divmod(p.shape.q_len, kernel.canvas)
    if rest or kernel.within != "all":
        yield Problem("kernel.canvas", "expected one that divides q_len, and kernel.within: all")
    elif not kernel.window % 2 or kernel.window > min(rows, kernel.canvas):
        yield Problem("kernel.window", "expected an odd one, within the canvas")


def _imports(spec: AttentionGym) -> list[str]:
    """Import statements for what of attention-gym the program uses."""
    texts = [WITHIN[spec.within], FACTORIES[spec.mask] if spec.within != "packed" else ""]
    names = {text.partition("(")[0] for text in texts} - {"", "{mod}"}
    if spec.fast:
        lines = ["from attn_gym.masks.causal import create_causal_block_mask_fast"]
    else:
        lines = [f"from attn_gym.masks import {', '.join(sorted(names))}"]
    if spec.score != "none":
        lines.append(f"from attn_gym.mods import {SCORES[spec.score].partition('(')[0]}")
    return lines


def _block_mask(spec: AttentionGym, scene: Scene) -> str:
    length, device = scene.q_len, scene.inputs_device
    if spec.fast:
        sizes = f"{scene.batch}, {scene.q_heads}, {length}, {length}"
        size = f", {spec.block_size}" if spec.block_size != BLOCK else ""
        return f'block_mask = create_causal_block_mask_fast({sizes}, "{device}"{size})'
    rows = scene.program.shape.q_len // spec.canvas
    mod = FACTORIES[spec.mask].format(window=spec.window, canvas=spec.canvas, rows=rows)
    mod = WITHIN[spec.within].format(mod=mod, window=spec.window)
    mask, axes = scene.program.mask, frozenset[str]()
    if mask is not None:
        mod, axes = f"and_masks({mod}, mask_mod)", mask_axes(mask)
    batch, heads = (
        size if axis in axes else "None"
        for axis, size in (("b", scene.batch), ("h", scene.q_heads))
    )
    size = f", BLOCK_SIZE={spec.block_size}" if spec.block_size != BLOCK else ""
    sizes = f"{batch}, {heads}, {length}, {length}"
    return f'block_mask = create_block_mask({mod}, {sizes}, device="{device}"{size})'


def _seen(spec: AttentionGym, scene: Scene) -> list[str]:
    """Statements that set `seen`, `[…, L, L]`, to the mask that is meant."""
    length, same = scene.q_len, ""
    lines = [f"kv_idx = torch.arange({length})"]
    if spec.within in ("documents", "packed"):
        lines.append("document = torch.searchsorted(offsets, kv_idx, right=True) - 1")
        lines.append("kv_idx = kv_idx - offsets[document]")
        same = "document[:, None] == document"
    elif spec.within == "batches":
        lines.append(f"batch, kv_idx = kv_idx // {spec.window}, kv_idx % {spec.window}")
        same = "batch[:, None] == batch"
    lines.append("q_idx = kv_idx[:, None]")
    if spec.mask == "natten":
        lines += _neighbours(spec, scene)
    else:
        lines.append(f"seen = {MEANT[spec.mask].format(window=spec.window)}")
    lines += [f"seen = seen & ({same})"] if same else []
    if scene.program.mask is not None:
        sizes = commas((scene.batch, scene.q_heads, length, length))
        lines.append(f'seen = seen & create_mask(mask_mod, {sizes}, device="cpu")')
    return lines


def _neighbours(spec: AttentionGym, scene: Scene) -> list[str]:
    """As `_seen`: the square around a query, moved to lie on the canvas where it is at an edge."""
    half, wide = spec.window // 2, spec.canvas
    high = scene.program.shape.q_len // wide
    return [
        f"x = (q_idx % {wide}).clamp({half}, {wide - 1 - half})",
        f"y = (q_idx // {wide}).clamp({half}, {high - 1 - half})",
        f"seen = (kv_idx % {wide} - x).abs() <= {half}",
        f"seen = seen & ((kv_idx // {wide} - y).abs() <= {half})",
    ]


PLUGIN = AttentionGymPlugin()
