"""`torch.nn.attention.flex_attention.flex_attention`, written down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning, Share
from attnfuzz.generators.kernels.conditions import differentiates
from attnfuzz.generators.kernels.flex import journey, paging, write_order
from attnfuzz.generators.kernels.flex.computing import computed
from attnfuzz.generators.kernels.flex.joined import Joined, joined_mask_mod
from attnfuzz.generators.kernels.flex.making import block_mask, other_problems, reached_extents
from attnfuzz.generators.kernels.flex.refusals import REFUSALS
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec, Flex
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.scaling import (
    has_scale,
    same_scale,
    scale_argument,
    scale_problems,
)
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.expressions import mask_axes, nodes
from attnfuzz.generators.model.indices import Axis
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Argument, Program
from attnfuzz.generators.model.scores import MaskedScore, ScoreMod
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.dense import may_hide_everything
from attnfuzz.generators.render.expressions import Expr
from attnfuzz.generators.render.mods import INDICES, Mod, mask_mod, on_grids, score_mod
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.sizes import commas

Mods = tuple[Mod | None, Mod | None]


class FlexPlugin(KernelPlugin[Flex]):
    """mask_mod and score_mod are functions, or made in `inputs`. Tables that are learnable or
    `computed`, or captured by a mask that is built inside, are arguments instead, and their closure
    is made where it is used."""

    spec_class = Flex
    labels = ("module: flex attention",)
    rewritable = True
    computes_scale = True
    takes_nothing = frozenset({"batch"})  # eagerly it divides by the number of heads
    takes_score_mod = True
    refusals = REFUSALS

    def mods(self, inputs: Inputs) -> Mods:
        """mask_mod and score_mod."""
        named = {mod.name: mod for mod in inputs.mods}
        return named.get("mask_mod"), named.get("score_mod")

    def inputs(self, scene: Scene) -> Inputs:
        p, spec, inputs = scene.program, self.spec(scene.program), Inputs()
        if p.score_mod is not None:
            made = spec.block_mask
            extents = None if made is None else paging.reached(made, scene.extents)
            self._score_inputs(score_mod(p.score_mod, scene, spec.mods, extents), scene, inputs)
        if spec.block_mask is not None and p.mask is not None:
            built = reached_extents(scene, spec.block_mask)
            written = joined_mask_mod if spec.joints == "functions" else mask_mod
            mod = written(p.mask, scene, built, spec.mods)
            self._mask_inputs(mod, spec.block_mask, scene, inputs)
        inputs.arguments += inputs.fresh_names
        return inputs

    def _score_inputs(self, mod: Mod, scene: Scene, inputs: Inputs) -> None:
        inputs.mods.append(mod)
        if self._made_in_attention(mod, scene.program):
            training = scene.program.training is not None
            for captured in mod.captured:
                grad = ".requires_grad_()" if training and captured.learnable else ""
                inputs.statements += [captured.statement + grad] if captured.statement else []
            inputs.arguments += mod.tables
            inputs.floating += [c.name for c in mod.captured if c.kind == "float"]
            inputs.learnable += mod.learnable if training else ()
        elif not mod.is_function:
            inputs.fresh += [*mod.statements, f"score_mod = {mod.made}"]
            inputs.fresh_names.append("score_mod")

    def _mask_inputs(self, mod: Mod, spec: BlockMaskSpec, scene: Scene, inputs: Inputs) -> None:
        inputs.mods.append(mod)
        inputs.functions += journey.functions(spec, scene.extents)
        if spec.made == "outside":
            inputs.functions += write_order.functions(spec)
        here = commas((scene.batch, scene.q_heads, scene.q_len, scene.kv_len))
        made = mod.made
        if spec.made != "outside":
            inputs.statements += mod.statements
            inputs.arguments += mod.tables
            if spec.made == "cached":
                inputs.globals.append("BLOCK_MASKS = {}")
        else:
            inputs.fresh += mod.statements
            if isinstance(mod, Joined):  # the reference reads its tables
                inputs.fresh_names += mod.tables
            if self._keeps_mask_mod(mod, spec):
                inputs.fresh.append(f"mask_mod = {made}")
                inputs.fresh_names.append("mask_mod")
                made = "mask_mod"
            if spec.paged is not None:
                inputs.fresh += paging.reserved(spec, scene)
                inputs.fresh_names += paging.names(spec, scene)
            inputs.fresh += block_mask(made, spec, scene, scene.inputs_device)
            inputs.fresh += paging.converted_mask(spec, scene)
            inputs.fresh += journey.outside(spec, scene.extents, scene.inputs_device)
            inputs.fresh_names.append("block_mask")
            if spec.paged is None:
                made = mod.made if mod.is_function else "block_mask.mask_mod"
        inputs.seen = [f'mask = create_mask({made}, {here}, device="{scene.inputs_device}")']

    @staticmethod
    def _keeps_mask_mod(mod: Mod, spec: BlockMaskSpec) -> bool:
        """Whether the mask_mod is an argument too, for the reference: steps and pages leave
        another one, and a wrong order of writes none."""
        outside = spec.made == "outside" and not spec.steps_inside
        plain = mod.is_function or isinstance(mod, Joined)
        other = bool(spec.steps) or spec.paged is not None or spec.dq_write_order != "none"
        return outside and other and not plain

    def _made_in_attention(self, score: Mod, program: Program) -> bool:
        """Whether the tables of the score_mod are arguments, and not the score_mod itself."""
        return bool(score.learnable) or (self.spec(program).computed and bool(computed(score)))

    def _score_mod(self, score: Mod, program: Program) -> str:
        """The score_mod, or what makes it, where it is used."""
        return score.made if self._made_in_attention(score, program) else "score_mod"

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        mask, score = self.mods(inputs)
        args, statements = ["q", "k", "v"], []
        pages = spec.block_mask if spec.block_mask is not None and spec.block_mask.paged else None
        if pages is not None:
            args, statements = ["q", "k_cache", "v_cache"], paging.assigned(pages, scene)
        if score is not None:
            made = self._score_mod(score, scene.program)
            made = made if pages is None else paging.converted_mod(made, pages, "score_mod")
            args.append(f"score_mod={made}")
            if spec.computed:
                statements += computed(score)
        if mask is not None and spec.block_mask is not None:
            args.append("block_mask=block_mask")
            if spec.computed and spec.block_mask.made != "outside":
                statements += computed(mask)
            statements += self._made_here(mask.made, spec.block_mask, scene)
            if spec.block_mask.steps_inside or spec.block_mask.made != "outside":
                statements += journey.statements(spec.block_mask, scene.extents, scene.device)
        args += scale_argument(scene, spec)
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
        spec = self.spec(scene.program)
        mask, score = self.mods(inputs)
        modify: list[str] = []
        if score is not None:
            made = self._score_mod(score, scene.program)
            modify += on_grids(score, made, "scores", scene.extents)
            if changes_dtype(score):
                modify[-1] += ".to(q.dtype)"
            if not score.expr.scored and not score.loops:
                modify[-1] += ".expand_as(scores)"
        if mask is not None and spec.block_mask is not None:
            made = mask.made
            if not mask.is_function and spec.block_mask.made == "outside":
                made = "block_mask.mask_mod"
            if self._keeps_mask_mod(mask, spec.block_mask):
                made = "mask_mod"
            steps = spec.block_mask.steps
            extents = scene.extents
            if steps:
                extents = journey.extents_before(spec.block_mask, scene.extents)
            *grid, last = on_grids(mask, made, "mask", extents)
            value, rest = last.removeprefix("mask = "), list[str]()
            if steps:
                rest = journey.seen(spec.block_mask, scene.extents, value)
                value = "mask"
            rest.append(f'scores = scores.masked_fill(~{value}, float("-inf"))')
            modify += [line for line in grid if line not in modify and _named(line, rest)]
            modify += rest
        dead = may_hide_everything(scene.program.mask, scene)
        dead = dead or bool(spec.block_mask is not None and spec.block_mask.steps)
        dead = dead or hides_by_score(scene.program.score_mod)
        return Meaning(scene.scale_text(spec.scale, spec.scale_from), modify, zero_dead_rows=dead)

    def shareable(self, kernel: Flex, how: Share) -> bool:
        made = kernel.block_mask
        if made is None or how not in ("block_mask", "one_block_mask"):
            return False
        plain = BlockMaskSpec(batch=made.batch, heads=made.heads)
        whole = Flex(scale=kernel.scale, enable_gqa=kernel.enable_gqa, block_mask=plain)
        return replace(kernel, return_lse=False) == whole and (
            how == "block_mask" or not made.heads
        )

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        return ("out", "lse") if self.spec(scene.program).return_lse else ("out",)

    def problems(self, program: Program) -> Iterator[Problem]:
        p = program
        spec = self.spec(program).block_mask
        yield from scale_problems(p)
        if spec is None:
            if p.mask is not None:
                yield Problem(
                    "kernel.block_mask", "expected one: flex takes its mask as a BlockMask"
                )
            return
        if p.mask is None:
            yield Problem("kernel.block_mask", "expected none: there is no mask")
            return
        axes = mask_axes(p.mask)
        if "b" in axes and not spec.batch:
            yield Problem("kernel.block_mask.batch", "expected true: the mask depends on b")
        if "h" in axes and not spec.heads:
            yield Problem("kernel.block_mask.heads", "expected true: the mask depends on h")
        if spec.spare_batch and not spec.batch:
            yield Problem(
                "kernel.block_mask.spare_batch", "expected 0: the mask is built for no batch"
            )

        yield from other_problems(p, spec)
        yield from paging.problems(p, spec)
        if spec.compiled and spec.compiled_call:
            yield Problem("kernel.block_mask.compiled_call", "expected one way of compiling it")
        if differentiates(p) and not all(getattr(s, "q_blocks", True) for s in spec.steps):
            yield Problem("kernel.block_mask.steps", "expected q_blocks: a backward needs them")
        yield from journey.problems(p, spec)

    def propagates_nan(self, kernel: Flex) -> bool:
        return True

    def with_computed(self, kernel: Flex, scored: bool) -> Flex:
        inside = kernel.block_mask is not None and kernel.block_mask.made != "outside"
        return replace(kernel, computed=scored or inside)

    def takes_argument(self, kernel: Flex, argument: Argument) -> bool:
        return argument.what == "number" or not (has_scale(kernel) or argument.given == "tensor")

    def gqa_enabled(self, kernel: Flex) -> bool:
        return kernel.enable_gqa

    def selects_masked(self, kernel: Flex) -> bool:
        made = kernel.block_mask
        return made is not None and not made.steps and not any(made.other)

    def returns_lse(self, kernel: Flex) -> bool:
        return kernel.return_lse

    def keys_by_identity(self, kernel: Flex) -> bool:
        return kernel.block_mask is not None and kernel.block_mask.made == "cached"

    def fills_its_cache(self, program: Program) -> bool:
        kernel = self.spec(program)
        if not self.keys_by_identity(kernel) or program.mask is None:
            return False
        scene = Scene(program)
        mod = mask_mod(program.mask, scene, scene.extents, kernel.mods)
        return kernel.joints == "functions" or not mod.is_function

    def features(self, program: Program) -> Iterator[str]:
        kernel = self.spec(program)
        yield "kernel.flex"
        yield from choices(kernel, "kernel.flex", but=("kernel_options",))
        yield from (f"kernel_options.{name}" for name in kernel.kernel_options)
        if kernel.block_mask is not None:
            axes = mask_axes(program.mask) if program.mask is not None else frozenset()
            yield from _block_mask_features(kernel.block_mask, axes)

    def plain(self, kernel: Flex) -> Flex:
        return Flex(block_mask=None if kernel.block_mask is None else BlockMaskSpec())

    def in_blocks(self, kernel: Flex, length: int) -> Flex:
        if kernel.block_mask is None:
            return kernel
        return replace(kernel, block_mask=replace(kernel.block_mask, block_size=(length, length)))

    def without_groups(self, kernel: Flex) -> Flex:
        return replace(kernel, enable_gqa=False)

    def fitted(self, program: Program) -> Program:
        return changed(program, kernel=self._fitted(program))

    def _fitted(self, p: Program) -> Flex:
        kernel = self.spec(p)
        kernel = changed(kernel, enable_gqa=kernel.enable_gqa or is_grouped(p))
        if p.mask is None:
            return changed(kernel, block_mask=None)
        spec = kernel.block_mask or BlockMaskSpec()
        depends = mask_axes(p.mask)
        batch, heads = spec.batch or "b" in depends, spec.heads or "h" in depends
        spare = spec.spare_batch if batch else 0
        inside = spec.steps_inside and bool(spec.steps) and spec.made == "outside"
        other = (spec.other[0] if batch else 0, spec.other[1] if heads else 0, *spec.other[2:])
        fitting = changed(
            spec, batch=batch, heads=heads, spare_batch=spare, steps_inside=inside, other=other
        )
        if spec.paged is not None and not paging.pages_are_full(p, spec):
            fitting = changed(fitting, paged=changed(spec.paged, kv_len=True))
        return changed(kernel, block_mask=fitting)

    def variants(self, program: Program) -> Iterator[tuple[str, Flex]]:
        if isinstance(program.kernel, Flex):
            return
        block_mask = BlockMaskSpec(batch=True, heads=True) if program.mask is not None else None
        same = same_scale(program)
        yield "flex", Flex(**same, block_mask=block_mask, enable_gqa=is_grouped(program))


def _block_mask_features(spec: BlockMaskSpec, axes: frozenset[Axis]) -> Iterator[str]:
    yield "block_mask"
    yield from _block_size_features(*spec.block_size)
    if spec.made != "outside":
        yield "block_mask.inside"
    if spec.made == "cached":
        yield "block_mask.cached"
    if any(step.kind == "adjusted" for step in spec.steps):
        yield "block_mask.adjusted"
    for step in spec.steps:
        yield f"block_mask.{step.kind}"
        yield from choices(step, f"block_mask.{step.kind}")
        for name in ("batch", "heads", "rows"):
            cut = getattr(step, name, None)
            if cut is not None:
                yield f"block_mask.sliced.{name}"
                yield from choices(cut, f"block_mask.sliced.{name}")
    if spec.built_for_extra != (0, 0):
        yield "block_mask.adjusted"
    if spec.spare_batch:
        yield "block_mask.spare_batch"
    for name, more in zip(("batch", "heads", "q_len", "kv_len"), spec.other, strict=True):
        if more:
            yield "block_mask.other"
            yield f"block_mask.other.{name}"
            yield f"block_mask.other.{'more' if more > 0 else 'fewer'}"
    if spec.paged is not None:
        yield "block_mask.paged"
        yield from choices(spec.paged, "block_mask.paged")
        numbers = {"spare": spec.paged.spare, "first": spec.paged.first}
        yield from (f"block_mask.paged.{name}" for name, number in numbers.items() if number)
    forced = [name for name, axis in (("batch", "b"), ("heads", "h")) if axis in axes]
    yield from choices(spec, "block_mask", but=("made", *forced))


def _block_size_features(queries: int, keys: int) -> Iterator[str]:
    if (queries, keys) != (128, 128):
        yield "block_mask.block_size"
    if queries != keys:
        yield "block_mask.block_size.oblong"
    if queries & (queries - 1) or keys & (keys - 1):
        yield "block_mask.block_size.nonpow2"
    if keys % 2:
        yield "block_mask.block_size.odd"  # no pairs of them


def changes_dtype(mod: Mod) -> bool:
    """Whether the scores may come out in another dtype than they went in."""
    expr: Expr = mod.expr
    return not expr.scored or expr.kind != "float" or bool(mod.captured)


def hides_by_score(score: ScoreMod | None) -> bool:
    """Whether the score modification itself may give -inf."""
    return any(isinstance(node, MaskedScore) for _, node in nodes(score))


def _named(statement: str, lines: list[str]) -> bool:
    """Whether the lines name what the statement sets, if that is an index: joined masks are written
    with the indices that they depend on alone."""
    name = statement.split(" = ")[0]
    return name not in INDICES or bool(re.search(rf"\b{name}\b", "\n".join(lines)))


PLUGIN = FlexPlugin()
