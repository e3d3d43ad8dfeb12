"""torchtune's attention, written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.packing import cuts
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.kernels.system_rules import one_dtype, without
from attnfuzz.generators.kernels.torchtune.spec import Torchtune
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.dense import dense_mask, full_shape, may_hide_everything
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas

MODULE = "torchtune.modules.attention_utils"


def is_packed(program: Program) -> bool:
    """Whether its sequences are packed, so that a card gets flex_attention."""
    return isinstance(program.kernel, Torchtune) and program.kernel.pattern == "packed"


def is_packed_below_16(program: Program) -> bool:
    """Whether flex_attention gets a head dimension that a card's tiles do not have."""
    return is_packed(program) and program.shape.head_dim < 16


class TorchtunePlugin(KernelPlugin[Torchtune]):
    """The mask that is meant, `seen`, is an argument of its own for the reference where the mask
    that torchtune makes may be a BlockMask."""

    spec_class = Torchtune
    package = "torchtune"
    interchangeable = False
    refusals = (
        Refusal(
            pattern=r"Skip (calling|inlining) `torch\.compiler\.disable\(\)`d function",
            why="torchtune keeps flex_attention out of the model's own compilation",
            needs=is_packed,
        ),
        Refusal(
            pattern=r"logging\.Logger method not supported for non-export cases",
            why="torchtune logs that it takes flex_attention",
            needs=is_packed,
        ),
        Refusal(
            pattern=r"NYI: embedding dimension of the query, key, and value must be at least 16",
            why="flex_attention on a GPU takes head dimensions from 16 on",
            needs=is_packed_below_16,
        ),
        *AUTOGRAD,
    )

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs(imports=_imports(spec, scene))
        inputs.globals.append("attention_call = _sdpa_or_flex_attention()")
        if spec.pattern == "packed":
            inputs.statements += [*_packed(spec, scene), *_block_causal_mask(scene)]
            inputs.arguments += ["seen", "mask"]
            inputs.meant = ("seen",)
        elif scene.program.mask is not None:
            shape = full_shape(scene, ("h",))
            inputs.statements += dense_mask(scene.program.mask, scene, "mask", shape)
            inputs.statements.append("mask = mask.squeeze(1)")
            inputs.arguments.append("mask")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec, statements = self.spec(scene.program), []
        if is_grouped(scene.program):
            shared = commas((scene.batch, scene.kv_heads, scene.q_heads // scene.kv_heads, -1))
            sizes = f"{shared}, {scene.head_dim}"
            statements = [
                f"{name} = {name}.unsqueeze(2).expand({sizes}).flatten(1, 2)" for name in ("k", "v")
            ]
        mask = "mask" if "mask" in inputs.arguments else "None"
        causal = spec.pattern == "causal"
        return Body(
            [f"attention_call(q, k, v, {mask}, dropout_p=0.0, is_causal={causal})"], statements
        )

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, extents = self.spec(scene.program), commas((scene.q_len, scene.kv_len))
        hidden = {
            "packed": "~seen",
            "causal": f"~torch.ones({extents}, dtype=torch.bool).tril()",
            "masked": "~mask[:, None]",
        }.get(spec.pattern)
        modify = [f'scores = scores.masked_fill({hidden}, float("-inf"))'] if hidden else []
        dead = spec.pattern == "masked" and may_hide_everything(scene.program.mask, scene)
        return Meaning(scene.scale_text(None), modify, zero_dead_rows=dead)

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        yield from without(p, "torchtune")
        if (p.mask is None) == (kernel.pattern == "masked"):
            yield Problem("mask", "expected one with kernel.pattern masked alone")
        elif p.mask is not None and "h" in mask_axes(p.mask):
            yield Problem("mask", "expected one that is alike for all heads")
        if p.shape.v_head_dim not in (None, p.shape.head_dim):
            yield Problem("shape.v_head_dim", "expected head_dim")
        for key, q_len, kv_len in lengths(p):
            if not q_len or not kv_len:
                yield Problem(f"{key}.kv_len", "expected at least 1, and q_len too")
            elif q_len != kv_len and kernel.pattern in ("packed", "causal"):
                yield Problem(f"{key}.kv_len", f"expected q_len ({q_len})")
        yield from one_dtype(p)

    def depends_on_batch(self, kernel: Torchtune) -> bool:
        """Every second entry has its sequences the other way round."""
        return kernel.pattern == "packed"

    def breaks(self, program: Program) -> tuple[str, ...]:
        """Before the disabled flex_attention it logs that it takes it."""
        return ("torch.compiler.disable", "logging.Logger") if is_packed(program) else ()

    # How its programs are simplified.

    def features(self, program: Program) -> Iterator[str]:
        kernel = self.spec(program)
        yield from super().features(program)
        if kernel.pattern == "packed" and kernel.sequences > 2:
            yield "kernel.torchtune.sequences"

    def plain(self, kernel: Torchtune) -> Torchtune:
        return Torchtune(pattern=kernel.pattern)

    def fitted(self, program: Program) -> Program:
        kernel = self.spec(program)
        if program.mask is None and kernel.pattern == "masked":
            kernel = changed(kernel, pattern="all")
        if kernel.pattern != "packed":
            kernel = changed(kernel, sequences=Torchtune().sequences)
        mask = program.mask if kernel.pattern == "masked" else None
        return changed(program, kernel=kernel, mask=mask, score_mod=None)


def _makes_block_mask_here(scene: Scene) -> bool:
    """Whether inputs of a card are made on the CPU: torchtune would make its BlockMask on the card
    by name."""
    return scene.device == "cuda" and scene.inputs_device != scene.device


def _imports(spec: Torchtune, scene: Scene) -> list[str]:
    names = ["_sdpa_or_flex_attention"]
    if spec.pattern == "packed" and not _makes_block_mask_here(scene):
        names.append("packed_block_causal_mask")
    return [f"from {MODULE} import {', '.join(names)}"]


def _packed(spec: Torchtune, scene: Scene) -> list[str]:
    """Statements for the lengths of the sequences of each entry, and the mask that is meant,
    `[B, 1, L, L]`."""
    each = f"lengths.flip(0) if i % 2 else lengths for i in range({scene.batch})"
    return [
        f"lengths = torch.tensor({cuts(scene.q_len, spec.sequences)}).diff()",
        f"seq_lens = [{each if scene.batch != 1 else 'lengths'}]",
        "document = torch.stack([torch.repeat_interleave(n) for n in seq_lens])",
        "seen = (document[:, None, :, None] == document[:, None, None, :]).tril()",
    ]


def _block_causal_mask(scene: Scene) -> list[str]:
    if not _makes_block_mask_here(scene):
        return ["mask = packed_block_causal_mask(seq_lens)"]
    sizes = f"{scene.batch}, None, {scene.q_len}, {scene.kv_len}"
    return [
        # What torchtune has in `packed_block_causal_mask`, which names the card.
        "def mask_mod(b, h, q_idx, kv_idx):",
        "    return (q_idx >= kv_idx) & (document[b, q_idx] == document[b, kv_idx])",
        f'mask = create_block_mask(mask_mod, {sizes}, device="{scene.inputs_device}")',
    ]


PLUGIN = TorchtunePlugin()
