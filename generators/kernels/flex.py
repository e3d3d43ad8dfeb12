"""`torch.nn.attention.flex_attention.flex_attention`, written down."""

from __future__ import annotations

from attnfuzz.generators.kernels.base import Body, Inputs, Meaning
from attnfuzz.generators.kernels.specs import BlockMaskSpec, Flex
from attnfuzz.generators.model.expressions import nodes
from attnfuzz.generators.model.scores import MaskedScore, ScoreMod
from attnfuzz.generators.render.captures import Extents
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.expressions import Expr
from attnfuzz.generators.render.mods import Mod, mask_mod, on_grids, score_mod
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.sizes import commas, plus

Mods = tuple[Mod | None, Mod | None]


class FlexPlugin:
    """mask_mod and score_mod are functions, or made in `inputs`. Tables that are
    learnable, or captured by a mask that is built inside, are arguments instead, and their closure
    is made where it is used."""

    def spec(self, scene: Scene) -> Flex:
        kernel = scene.program.kernel
        assert isinstance(kernel, Flex)
        return kernel

    def mods(self, inputs: Inputs) -> Mods:
        """mask_mod and score_mod."""
        named = {mod.name: mod for mod in inputs.mods}
        return named.get("mask_mod"), named.get("score_mod")

    def inputs(self, scene: Scene) -> Inputs:
        p, spec, inputs = scene.program, self.spec(scene), Inputs()
        if p.score_mod is not None:
            self._score_inputs(score_mod(p.score_mod, scene), scene, inputs)
        if spec.block_mask is not None and p.mask is not None:
            mod = mask_mod(p.mask, scene, built_extents(scene, spec.block_mask))
            self._mask_inputs(mod, spec.block_mask, scene, inputs)
        inputs.arguments += inputs.fresh_names
        return inputs

    def _score_inputs(self, mod: Mod, scene: Scene, inputs: Inputs) -> None:
        inputs.mods.append(mod)
        if mod.learnable:
            training = scene.program.training is not None
            for captured in mod.captured:
                grad = ".requires_grad_()" if training and captured.learnable else ""
                inputs.statements += [captured.statement + grad] if captured.statement else []
            inputs.arguments += mod.tables
            inputs.floating += [c.name for c in mod.captured if c.floating]
            inputs.learnable += mod.learnable if training else ()
        elif not mod.is_function:
            inputs.fresh += [*mod.statements, f"score_mod = {mod.made}"]
            inputs.fresh_names.append("score_mod")

    def _mask_inputs(self, mod: Mod, spec: BlockMaskSpec, scene: Scene, inputs: Inputs) -> None:
        inputs.mods.append(mod)
        here = commas((scene.batch, scene.q_heads, scene.q_len, scene.kv_len))
        made = mod.made
        if spec.made != "outside":
            inputs.statements += mod.statements
            inputs.arguments += mod.tables
        else:
            inputs.fresh += [*mod.statements, *block_mask(made, spec, scene, scene.inputs_device)]
            inputs.fresh_names.append("block_mask")
            made = "mask_mod" if mod.is_function else "block_mask.mask_mod"
        inputs.seen = [f'mask = create_mask({made}, {here}, device="{scene.inputs_device}")']

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene)
        mask, score = self.mods(inputs)
        args, statements = ["q", "k", "v"], []
        if score is not None:
            made = score.made if score.learnable else "score_mod"
            args.append(f"score_mod={made}")
        if mask is not None and spec.block_mask is not None:
            args.append("block_mask=block_mask")
            statements = self._made_here(mask.made, spec.block_mask, scene)
        if spec.scale is not None:
            args.append(f"scale={spec.scale!r}")
        if spec.enable_gqa:
            args.append("enable_gqa=True")
        if spec.kernel_options:
            args.append(f"kernel_options={scene.quoting.value(spec.kernel_options)}")
        if not spec.return_lse:
            return Body([f"flex_attention({', '.join(args)})"], statements)
        args.append("return_aux=AuxRequest(lse=True)")
        statements.append(f"out, aux = flex_attention({', '.join(args)})")
        return Body(["out", "aux.lse"], statements)

    def _made_here(self, made: str, spec: BlockMaskSpec, scene: Scene) -> list[str]:
        """Statements in the attention function that set `block_mask`."""
        if spec.made != "cached":
            made_inside = spec.made == "inside"
            return block_mask(made, spec, scene, scene.device) if made_inside else []
        sizes = ", B, Lq, Lkv" if scene.several else ""
        lines = [] if made == "mask_mod" else [f"mask_mod = {made}"]
        *first, last = block_mask("mask_mod", spec, scene, scene.device)
        lines.append(f"key = (id(mask_mod){sizes})" if sizes else "key = id(mask_mod)")
        lines.append("if key not in BLOCK_MASKS:")
        if first:
            lines += indented([*first, last, "BLOCK_MASKS[key] = block_mask"])
        else:
            lines += indented([last.replace("block_mask =", "BLOCK_MASKS[key] =", 1)])
        return [*lines, "block_mask = BLOCK_MASKS[key]"]

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec = self.spec(scene)
        mask, score = self.mods(inputs)
        modify: list[str] = []
        if score is not None:
            made = score.made if score.learnable else "score_mod"
            modify += on_grids(score, made, "scores", scene.extents)
            if changes_dtype(score):
                modify[-1] += ".to(q.dtype)"
            if not score.expr.scored and not score.loops:
                modify[-1] += ".expand_as(scores)"
        if mask is not None and spec.block_mask is not None:
            made = mask.made
            if not mask.is_function and spec.block_mask.made == "outside":
                made = "block_mask.mask_mod"
            lines = on_grids(mask, made, "mask", scene.extents)
            modify += [line for line in lines[:-1] if line not in modify]
            value = lines[-1].removeprefix("mask = ")
            modify.append(f'scores = scores.masked_fill(~{value}, float("-inf"))')
        dead = may_hide_everything(scene.program.mask, scene)
        dead = dead or hides_by_score(scene.program.score_mod)
        return Meaning(scene.scale_text(spec.scale), modify, zero_dead_rows=dead)

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        return ("out", "lse") if self.spec(scene).return_lse else ("out",)


def built_extents(scene: Scene, spec: BlockMaskSpec) -> Extents:
    """What the BlockMask is built for, hence how far the mask's tables must reach."""
    q_extra, kv_extra = spec.built_for_extra
    return Extents(
        plus(scene.batch, spec.spare_batch), scene.q_heads,
        plus(scene.q_len, q_extra), plus(scene.kv_len, kv_extra),
    )  # fmt: skip


def block_mask(made: str, spec: BlockMaskSpec, scene: Scene, device: str) -> list[str]:
    """Statements that set `block_mask`."""
    built = built_extents(scene, spec)
    args = [
        made, str(built.b) if spec.batch else "None", str(built.h) if spec.heads else "None",
        str(built.q_idx), str(built.kv_idx), f'device="{device}"',
    ]  # fmt: skip
    rows, columns = spec.block_size
    if spec.block_size != (128, 128):
        args.append(f"BLOCK_SIZE={rows if rows == columns else spec.block_size}")
    if spec.compiled:
        args.append("_compile=True")
    statements = []
    if spec.spare_batch and made != "mask_mod":
        statements.append(f"mask_mod = {made}")
        args[0] = "mask_mod"
    created = f"block_mask = create_block_mask({', '.join(args)})"
    adjusted = f"._adjust({commas((scene.q_len, scene.kv_len))})"
    if not spec.spare_batch:
        return [*statements, created + (adjusted if any(spec.built_for_extra) else "")]
    statements += [created, f"block_mask = block_mask[:{scene.batch}]"]
    statements.append("block_mask.mask_mod = mask_mod  # slicing drops it")
    if any(spec.built_for_extra):
        statements.append(f"block_mask = block_mask{adjusted}")
    return statements


def changes_dtype(mod: Mod) -> bool:
    """Whether the scores may come out in another dtype than they went in."""
    expr: Expr = mod.expr
    return not expr.scored or expr.kind != "float" or bool(mod.captured)


def hides_by_score(score: ScoreMod | None) -> bool:
    """Whether the score modification itself may give -inf."""
    return any(isinstance(node, MaskedScore) for _, node in nodes(score))


PLUGIN = FlexPlugin()
