"""Attention out of plain tensor operations, in the ways models write it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning, Share
from attnfuzz.generators.kernels.handwritten.refusals import REFUSALS
from attnfuzz.generators.kernels.handwritten.spec import Handwritten
from attnfuzz.generators.kernels.scaling import (
    has_scale,
    integer_problems,
    same_scale,
    scale_problems,
    whole_divisor,
)
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Argument, Program
from attnfuzz.generators.render.dense import dense_mask, full_shape
from attnfuzz.generators.render.mods import INDICES
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import (
    Size,
    commas,
    inverse_root,
    plus,
    product,
    query_size,
    root,
)

FLAT = ("bmm", "baddbmm")
SMALLEST_SCALE = 1e-9
"""Its inverse is written down, too."""


class HandwrittenPlugin(KernelPlugin[Handwritten]):
    """The mask is an argument `mask`: bool `[…, Lq, Lkv]`, or additive for masking `add`."""

    spec_class = Handwritten
    rewritable = True
    computes_scale = True
    takes_nothing = frozenset({"batch", "heads"})
    rebinds_query = True
    nan_where_nothing_is_seen = True
    recognised_as_sdpa = True
    refusals = REFUSALS

    def inputs(self, scene: Scene) -> Inputs:
        mask, spec = scene.program.mask, self.spec(scene.program)
        if mask is None:
            return Inputs()
        shape = self.mask_shape(scene)
        statements = dense_mask(mask, scene, "mask", shape)
        if spec.masking == "add":
            dtype = scene.program.q.dtype
            zeros = f"torch.zeros({commas(shape)}{dtype_argument(dtype)})"
            fill = self.fill(scene, f"torch.{dtype}")
            statements.append(f"mask = {zeros}.masked_fill(~mask, {fill})")
        return Inputs(statements, ["mask"], floating=["mask"] if spec.masking == "add" else [])

    def mask_shape(self, scene: Scene) -> tuple[Any, ...]:
        """4-D where the mask depends on batch or head (or heads are grouped), else `[Lq, Lkv]`."""
        assert scene.program.mask is not None
        axes = mask_axes(scene.program.mask)
        shape = full_shape(scene, tuple(axis for axis in INDICES if axis not in axes))
        flat = axes <= {"q_idx", "kv_idx"} and self.spec(scene.program).product != "rank5"
        return shape[2:] if flat else shape

    def fill(self, scene: Scene, dtype: str) -> str:
        """The expression for a masked-out score: -inf, or the least finite number of `dtype`."""
        if self.spec(scene.program).fill == "-inf":
            return 'float("-inf")'
        return f"torch.finfo({dtype}).min"

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        return _Writer(self, scene, masked=bool(inputs.arguments)).body()

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify, replaced = self.spec(scene.program), [], None
        if inputs.arguments and spec.masking == "add":
            modify.append("scores = scores + mask")
        elif inputs.arguments:
            fill = self.fill(scene, "scores.dtype")
            modify.append(f"scores = scores.masked_fill(~mask, {fill})")
            replaced = "~mask"
        scale: str | None = scene.scale_text(spec.scale, spec.scale_from)
        if spec.scaling == "none":
            scale = None
        elif spec.scale_as == "tensor" and not scene.scale_varies:
            scale = f"torch.tensor({scale}, dtype=q.dtype)"
        finish = "{out}"
        if not scene.program.surround.projections and spec.out_layout != "bhld":
            finish = "{out}.transpose({heads}, {length})"
            finish += ".flatten(-2)" if spec.out_layout == "merged" else ""
        return Meaning(scale, modify, finish=finish, replaced=replaced)

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        yield from scale_problems(p)
        if kernel.scale_from != "constant" and kernel.scaling == "none":
            yield Problem("kernel.scale_from", "expected constant: there is no scaling")
        if kernel.scale == 0 and kernel.scaling in ("div", "query_div"):
            yield Problem("kernel.scale", "expected not 0: it is divided by its inverse")
        if kernel.scale and abs(kernel.scale) < SMALLEST_SCALE:
            yield Problem("kernel.scale", f"expected 0, or {SMALLEST_SCALE} or more either way")
        if kernel.scale is not None and kernel.scale <= 0 and kernel.scaling == "both":
            yield Problem("kernel.scale", f"expected > 0 for its root, got {kernel.scale}")
        if kernel.scale_as == "integer":
            yield from integer_problems(p)
        if kernel.softmax == "exp_sum":
            for key, _, kv_len in lengths(p):
                if kv_len == 0:
                    yield Problem(
                        f"{key}.kv_len", "expected > 0: exp_sum takes a maximum over keys"
                    )

    def selects_masked(self, kernel: Handwritten) -> bool:
        return kernel.masking != "add"

    def propagates_nan(self, kernel: Handwritten) -> bool:
        return True

    def takes_argument(self, kernel: Handwritten, argument: Argument) -> bool:
        if argument.what == "number":
            return True
        positive = all(value > SMALLEST_SCALE for value in argument.values)
        free = not has_scale(kernel) and kernel.scale_as != "integer"
        return free and kernel.scaling != "none" and positive

    def keeps_layout(self, kernel: Handwritten) -> bool:
        return kernel.out_layout == "bhld"

    def wrappable(self, kernel: Handwritten) -> bool:
        return self.keeps_layout(kernel)

    def distributable(self, kernel: Handwritten) -> bool:
        return kernel.product != "baddbmm"

    def shareable(self, kernel: Handwritten, how: Share) -> bool:
        if how not in ("heads", "rows"):
            return False
        whole = self.keeps_layout(kernel) and kernel.product in ("matmul", "einsum")
        whole = whole and kernel.scale_from == "constant"
        return whole and kernel.gqa != "expand" and not kernel.dropout_p

    def dropout_p(self, kernel: Handwritten) -> float:
        return kernel.dropout_p

    def droppable(self, kernel: Handwritten) -> Handwritten:
        return replace(kernel, out_layout="bhld", dropout=False)

    def features(self, program: Program) -> Iterator[str]:
        yield from super().features(program)
        if self.spec(program).dropout_p:
            yield "kernel.handwritten.dropout_p"

    def plain(self, kernel: Handwritten) -> Handwritten:
        return Handwritten()

    def variants(self, program: Program) -> Iterator[tuple[str, Handwritten]]:
        if not isinstance(program.kernel, Handwritten):
            yield "handwritten", Handwritten(**same_scale(program))


class _Writer:
    """Writes one attention body, step by step."""

    def __init__(self, plugin: HandwrittenPlugin, scene: Scene, masked: bool) -> None:
        self.plugin, self.scene, self.spec = plugin, scene, plugin.spec(scene.program)
        self.masked = masked
        self.lines: list[str] = []
        self.flat = self.spec.product in FLAT
        self.fuses_scale = (
            self.spec.product == "baddbmm"
            and self.spec.scaling in ("mul", "div")
            and self.spec.scale_as == "constant"
            and not self.varies_as_tensor
        )
        on_product = self.spec.scaling in ("mul", "div")
        self.fuses_mask = (
            masked
            and self.spec.product == "baddbmm"
            and self.spec.masking == "add"
            and (self.fuses_scale or not on_product)
        )

    @property
    def varies_as_tensor(self) -> bool:
        """Whether the scale is a tensor that is an argument."""
        argument = self.scene.program.argument
        return self.scene.scale_varies and argument is not None and argument.given == "tensor"

    def body(self) -> Body:
        self.group_heads()
        self.scale_operands()
        self.lines.append(f"scores = {self.scaled_product()}")
        if self.masked and not self.fuses_mask:
            self.mask_scores()
        self.softmax()
        if self.spec.dropout_p:
            self.lines.append(f"probs = F.dropout(probs, p={self.spec.dropout_p!r})")
        elif self.spec.dropout:
            self.lines.append("probs = F.dropout(probs, p=0.1, training=False)")
        return Body([self.output()], self.lines)

    def group_heads(self) -> None:
        """Give every query head its key head, and flatten batch and heads for 3-D products."""
        scene, group = self.scene, self.scene.group
        if self.spec.product == "rank5":
            self.lines.append(f"q = q.unflatten(1, ({scene.kv_heads}, {group}))")
            self.lines.append("k, v = k[:, :, None], v[:, :, None]")
        elif group > 1 and self.spec.gqa == "expand":
            unit = self.spec.dropout_p > 0  # the matrix beside v
            v_dim = plus(scene.kv_len, scene.v_head_dim) if unit else scene.v_head_dim
            for name, dim in (("k", scene.head_dim), ("v", v_dim)):
                shape = commas((scene.batch, scene.kv_heads, group, scene.kv_len, dim))
                self.lines.append(f"{name} = {name}[:, :, None].expand({shape}).flatten(1, 2)")
        elif group > 1:
            for name in ("k", "v"):
                self.lines.append(f"{name} = {name}.repeat_interleave({group}, dim=1)")
        if self.flat:
            self.lines.append("q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)")

    def constant(self, power: float) -> str:
        """The scale to `power` (1, -1 or 1/2), a constant or a 0-d tensor of q's dtype; an integer,
        to -1 alone."""
        scale = self.spec.scale
        if self.spec.scale_as == "integer":
            return str(whole_divisor(scale, self.scene.head_dim))
        if self.scene.scale_varies:
            return {1: "scale", -1: "(1 / scale)", 0.5: "scale**0.5"}[power]
        if self.spec.scale_from != "constant":
            text = query_size(self.spec.scale_from, -power / 2)
        elif scale is not None:
            text = repr(float(scale) ** power if power != 0.5 else math.sqrt(scale))
        elif power == 0.5:
            text = f"{self.scene.head_dim} ** -0.25"
        else:
            text = (inverse_root if power == 1 else root)(self.scene.head_dim)
        return f"torch.tensor({text}, dtype=q.dtype)" if self.spec.scale_as == "tensor" else text

    def scale_operands(self) -> None:
        match self.spec.scaling:
            case "query_mul":
                self.lines.append(f"q = q * {self.constant(1)}")
            case "query_div":
                self.lines.append(f"q = q / {_operand(self.constant(-1))}")
            case "key_mul":
                self.lines.append(f"k = k * {self.constant(1)}")
            case "both":
                self.lines.append(f"q, k = q * {self.constant(0.5)}, k * {self.constant(0.5)}")

    def swapped(self, name: str) -> str:
        """`name` with its last two dimensions exchanged."""
        if self.spec.transpose == "mT":
            return f"{name}.mT"
        if self.spec.transpose == "transpose" or name.startswith("mask"):
            return f"{name}.transpose(-2, -1)"
        unflattened = name == "probs" and self.flat and self.masked and not self.fuses_mask
        rank = 5 if self.spec.product == "rank5" else 3 if self.flat and not unflattened else 4
        dims = [*range(rank - 2), rank - 1, rank - 2]
        return f"{name}.permute({', '.join(map(str, dims))})"

    def scaled_product(self) -> str:
        text = self.product()
        if self.fuses_scale:
            return text
        if self.spec.scaling == "mul":
            return f"{text} * {self.constant(1)}"
        if self.spec.scaling == "div":
            return f"{text} / {_operand(self.constant(-1))}"
        return text

    def product(self) -> str:
        """q k^T, or k q^T where the softmax runs over the other dimension."""
        first, second = ("k", "q") if self.spec.transposed else ("q", "k")
        if self.spec.product == "einsum":
            subscripts = "bhkd,bhqd->bhkq" if self.spec.transposed else "bhqd,bhkd->bhqk"
            return f'torch.einsum("{subscripts}", {first}, {second})'
        if self.spec.product == "baddbmm":
            return self.baddbmm(first, self.swapped(second))
        text = f"torch.{'bmm' if self.flat else 'matmul'}({first}, {self.swapped(second)})"
        return text

    def lengths(self) -> tuple[Size, Size]:
        """The extents of the last two dimensions of the scores."""
        lengths = (self.scene.q_len, self.scene.kv_len)
        return lengths[::-1] if self.spec.transposed else lengths

    def baddbmm(self, first: str, second: str) -> str:
        scene, options = self.scene, []
        if self.fuses_mask:
            mask = self.swapped("mask") if self.spec.transposed else "mask"
            full = commas((scene.batch, scene.q_heads, *self.lengths()))
            start = f"{mask}.expand({full}).flatten(0, 1)"
        else:
            shape = commas((product((scene.batch, scene.q_heads)), *self.lengths()))
            start = f"torch.empty({shape}{scene.like_q()})"
            options.append("beta=0")
        if self.fuses_scale:
            options.append(f"alpha={self.constant(1)}")
        return f"torch.baddbmm({', '.join([start, first, second, *options])})"

    def mask_scores(self) -> None:
        scene, spec = self.scene, self.spec
        if self.flat:
            self.lines.append(f"scores = scores.unflatten(0, ({scene.batch}, {scene.q_heads}))")
        mask = "mask"
        if spec.product == "rank5":
            per_head = self.plugin.mask_shape(scene)[1] != 1
            groups = (scene.kv_heads, scene.group) if per_head else (1, 1)
            mask = f"mask.unflatten(1, {groups})"
        if spec.transposed:
            mask = self.swapped(mask)
        fill = self.plugin.fill(scene, "scores.dtype")
        match spec.masking:
            case "add":
                text = f"scores + {mask}"
            case "masked_fill":
                text = f"scores.masked_fill(~{mask}, {fill})"
            case _:
                text = f"torch.where({mask}, scores, {fill})"
        self.lines.append(f"scores = {text}")

    def softmax(self) -> None:
        dim = -2 if self.spec.transposed else -1
        upcast = self.upcasts()
        scores = "scores.float()" if upcast else "scores"
        match self.spec.softmax:
            case "functional":
                dtype = ", dtype=torch.float32" if upcast else ""
                text = f"F.softmax(scores, dim={dim}{dtype})"
            case "method":
                text = f"{scores}.softmax(dim={dim})"
            case "module":
                text = f"torch.nn.Softmax(dim={dim})({scores})"
            case _:
                shifted = f"{scores} - {scores}.amax(dim={dim}, keepdim=True)"
                self.lines.append(f"weights = torch.exp({shifted})")
                text = f"weights / weights.sum(dim={dim}, keepdim=True)"
                text = f"({text})" if upcast else text
        self.lines.append(f"probs = {text}{'.to(v.dtype)' if upcast else ''}")

    def upcasts(self) -> bool:
        """Whether the softmax is done in float32; for float64 that would be no upcast."""
        p = self.scene.program
        return self.spec.softmax_dtype == "float32" and "float64" not in (
            p.q.dtype, p.k.dtype, p.v.dtype,
        )  # fmt: skip

    def output(self) -> str:
        scene, spec = self.scene, self.spec
        unflattened = self.flat and self.masked and not self.fuses_mask
        layout = "bhld" if scene.program.surround.projections else spec.out_layout
        if spec.product == "einsum":
            weights = "bhkq" if spec.transposed else "bhqk"
            if layout == "bhld":
                return f'torch.einsum("{weights},bhkd->bhqd", probs, v)'
            out = f'torch.einsum("{weights},bhkd->bqhd", probs, v)'
            return out + (".flatten(2)" if layout == "merged" else "")
        probs = self.swapped("probs") if spec.transposed else "probs"
        if unflattened:
            probs += ".flatten(0, 1)"
        out = f"torch.{'bmm' if self.flat else 'matmul'}({probs}, v)"
        if self.flat:
            out += f".unflatten(0, ({scene.batch}, {scene.q_heads}))"
        if spec.product == "rank5":
            out += ".flatten(1, 2)"
        return out + {
            "bhld": "", "blhd": ".transpose(1, 2).contiguous()",
            "merged": ".transpose(1, 2).flatten(2)",
        }[layout]  # fmt: skip


def _operand(text: str) -> str:
    """`text` as the right side of a division."""
    return f"({text})" if "**" in text and not text.startswith("torch") else text


PLUGIN = HandwrittenPlugin()
