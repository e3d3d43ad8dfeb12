"""`torch.nn.MultiheadAttention`: how it is written, and what it supports and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.multihead_attention.spec import MultiheadAttention
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.model.expressions import mask_axes
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program, Surround
from attnfuzz.generators.render.dense import dense_mask, full_shape, may_hide_everything
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import commas


def hints_without_mask(program: Program) -> bool:
    """The program gives the hint that its mask is causal, and no mask."""
    kernel = program.kernel
    return isinstance(kernel, MultiheadAttention) and kernel.is_causal and program.mask is None


class MultiheadAttentionPlugin(KernelPlugin[MultiheadAttention]):
    """The module is a global, called through `torch.func.functional_call` with weights that are
    inputs: so they have gradients, and every precision in which the program is judged."""

    spec_class = MultiheadAttention
    interchangeable = False
    refusals = (
        Refusal(
            pattern=r"(?i)need attn_mask if specifying the is_causal hint",
            why="is_causal is a hint about attn_mask, which has to be there",
            needs=hints_without_mask,
        ),
        *AUTOGRAD,
    )

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs(globals=_module(scene, spec))
        self._weights(scene, spec, inputs)
        if scene.program.mask is not None:
            inputs.statements += self._mask(scene, spec)
            inputs.arguments.append("attn_mask")
            inputs.floating += ["attn_mask"] * (spec.mask_form == "float")
        if spec.key_padding != "none":
            inputs.statements += self._padding(scene, spec)
            inputs.arguments.append("key_padding_mask")
            inputs.floating += ["key_padding_mask"] * (spec.key_padding == "float")
        return inputs

    def _weights(self, scene: Scene, spec: MultiheadAttention, inputs: Inputs) -> None:
        """The module's parameters, of variance 1 / fan-in, so that projections keep the scale."""
        training = scene.program.training is not None
        kind = dtype_argument(scene.program.q.dtype)
        for name, shape in _parameters(scene, spec).items():
            text = f"torch.randn({commas(shape)}{kind})"
            text = f"{text} / {shape[-1]} ** 0.5" if len(shape) == 2 else text
            grad = f"({text}).requires_grad_()" if len(shape) == 2 else f"{text}.requires_grad_()"
            inputs.statements.append(f"{_argument(name)} = {grad if training else text}")
            inputs.arguments.append(_argument(name))
            inputs.floating.append(_argument(name))
            inputs.learnable += [_argument(name)] * training

    def _mask(self, scene: Scene, spec: MultiheadAttention) -> list[str]:
        mask = scene.program.mask
        assert mask is not None
        shape = full_shape(scene, () if spec.mask_rank == 3 else ("b", "h"))
        lines = dense_mask(mask, scene, "mask", shape if spec.mask_rank == 3 else shape[2:])
        hidden = "~mask.flatten(0, 1)" if spec.mask_rank == 3 else "~mask"
        return [*lines, f"attn_mask = {_form(hidden, scene, spec.mask_form)}"]

    def _padding(self, scene: Scene, spec: MultiheadAttention) -> list[str]:
        entries = f"((torch.arange({scene.batch}) + 1) % 3)[:, None]"
        kept = f"({scene.kv_len} - {scene.kv_len} * {entries} // 3).clamp(min=1)"
        line = f"padded = torch.arange({scene.kv_len}) >= {kept}"
        form = _form("padded", scene, spec.key_padding)
        return [line, f"key_padding_mask = {form}"]

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        merged = "transpose(1, 2)" if spec.batch_first else "permute(2, 0, 1, 3)"
        names = ("query",) * 3 if spec.self_attention else ("query", "key", "value")
        pairs = zip(dict.fromkeys(names), ("q", "k", "v"), strict=False)
        statements = [f"{name} = {source}.{merged}.flatten(2)" for name, source in pairs]
        entries = [f'"{name}": {_argument(name)}' for name in _parameters(scene, spec)]
        options = [
            *(f'"{name}": {name}' for name in ("attn_mask", "key_padding_mask")
              if name in inputs.arguments),
            *(['"need_weights": False'] if spec.need_weights == "none" else []),
            *(['"average_attn_weights": False'] if spec.need_weights == "heads" else []),
            *(['"is_causal": True'] if spec.is_causal else []),
        ]  # fmt: skip
        statements.append(f"parameters = {{{', '.join(entries)}}}")
        statements.append(f"options = {{{', '.join(options)}}}")
        call = f"torch.func.functional_call(module, parameters, ({', '.join(names)}), options)"
        if spec.need_weights == "none":
            return Body([f"{call}[0]"], statements)
        return Body(["out", "weights"], [*statements, f"out, weights = {call}"])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        for name in ("attn_mask", "key_padding_mask"):
            if name in inputs.arguments:
                mask = "key_padding_mask[:, None, None]"
                if name == "attn_mask":
                    heads = f"({scene.batch}, {scene.q_heads})"
                    mask = name if spec.mask_rank == 2 else f"{name}.unflatten(0, {heads})"
                added = name in inputs.floating
                text = f"scores + {mask}" if added else f'scores.masked_fill({mask}, float("-inf"))'
                modify.append(f"scores = {text}")
        if spec.add_zero_attn:
            modify.append("scores, v = F.pad(scores, (0, 1)), F.pad(v, (0, 0, 0, 1))")
        bias = ", out_bias" if spec.bias else ""
        finish = f"F.linear({{out}}.transpose({{heads}}, {{length}}).flatten(2), out_weight{bias})"
        weights = "torch.softmax(scores, dim=-1)"
        weights += ".mean(dim=1)" if spec.need_weights == "averaged" else ""
        return Meaning(
            scene.scale_text(None),
            modify,
            prepare=_projections(scene, spec),
            finish=finish if spec.batch_first else f"{finish}.transpose(0, 1)",
            further={"weights": weights},
        )

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        none = self.spec(scene.program).need_weights == "none"
        return ("out",) if none else ("out", "weights")

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        for key, wrong in (
            ("packed", p.packed != "none"),
            ("transform", p.transform != "none"),
            ("autocast", p.autocast is not None),
            ("surround", replace(p.surround, checkpoint="none") != Surround()),
            ("training.double", p.training is not None and p.training.double),
        ):
            if wrong:
                yield Problem(key, "expected none with multihead_attention")
        for name in ("k", "v"):
            if getattr(p, name).dtype != p.q.dtype:
                yield Problem(f"{name}.dtype", "expected q's, which is that of the weights")
        for key, q_len, kv_len in lengths(p):
            if not q_len or not kv_len:
                yield Problem(f"{key}.q_len", "expected lengths above 0 for multihead_attention")
            if kernel.self_attention and q_len != kv_len:
                yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}) with self_attention")
        if kernel.self_attention:
            yield from _self_attention_problems(p)
        yield from self._mask_problems(p, kernel)

    def _mask_problems(self, p: Program, kernel: MultiheadAttention) -> Iterator[Problem]:
        if kernel.is_causal and p.mask not in (None, Causal()):
            yield Problem("kernel.is_causal", "expected false: the mask is not the causal one")
        if kernel.is_causal and p.mask is None and kernel.mode == "eval":
            yield Problem("kernel.is_causal", "expected false: there is no mask to give a hint of")
        if p.mask is None:
            return
        if kernel.mask_rank == 2 and mask_axes(p.mask) & {"b", "h"}:
            yield Problem("kernel.mask_rank", "expected 3: the mask depends on b or h")
        if may_hide_everything(p.mask, Scene(p)):
            yield Problem("mask", "expected one that leaves each query a key, plainly")
        if kernel.key_padding not in ("none", kernel.mask_form):
            yield Problem("kernel.key_padding", "expected none or that of mask_form")
        if kernel.key_padding != "none" and p.mask != Causal():
            yield Problem("kernel.key_padding", "expected none, or no other mask than causal")

    def keeps_layout(self, kernel: MultiheadAttention) -> bool:
        return False

    def depends_on_batch(self, kernel: MultiheadAttention) -> bool:
        """Padding differs between entries; and the batch is not every argument's first dimension,
        nor the result's."""
        return True

    # How its programs are simplified.

    def plain(self, kernel: MultiheadAttention) -> MultiheadAttention:
        return MultiheadAttention(self_attention=kernel.self_attention, mode=kernel.mode)

    def fitted(self, program: Program) -> Program:
        kernel, p = self.spec(program), replace(program, score_mod=None)
        if p.mask is None:
            kernel = replace(kernel, mask_form="bool", mask_rank=2, is_causal=False)
        elif kernel.is_causal and p.mask != Causal():
            kernel = replace(kernel, is_causal=False)
        return replace(p, kernel=kernel)


def _self_attention_problems(p: Program) -> Iterator[Problem]:
    if p.shape.q_heads != p.shape.kv_heads or p.shape.v_head_dim not in (None, p.shape.head_dim):
        yield Problem("kernel.self_attention", "expected kv_heads and v_head_dim to be q's")
    if p.training is not None and set(p.training.wrt) - {"q"}:
        yield Problem("training.wrt", "expected q alone with self_attention")


def _parameters(scene: Scene, spec: MultiheadAttention) -> dict[str, tuple[int, ...]]:
    """The module's parameters and their shapes: one weight for q, k and v where these are as wide
    as the module, else three."""
    width = scene.q_heads * scene.head_dim
    kdim, vdim = scene.kv_heads * scene.head_dim, scene.kv_heads * scene.v_head_dim
    shapes: dict[str, tuple[int, ...]] = {"in_proj_weight": (3 * width, width)}
    if (kdim, vdim) != (width, width):
        shapes = {
            "q_proj_weight": (width, width),
            "k_proj_weight": (width, kdim),
            "v_proj_weight": (width, vdim),
        }
    shapes |= {"in_proj_bias": (3 * width,)} if spec.bias else {}
    shapes |= {"out_proj.weight": (width, width)}
    return shapes | ({"out_proj.bias": (width,)} if spec.bias else {})


def _argument(parameter: str) -> str:
    """The name that a parameter has among the arguments."""
    return parameter.replace("_proj", "").replace(".", "_")


def _module(scene: Scene, spec: MultiheadAttention) -> list[str]:
    """Statements for the module itself; the parameters that it is made with are never used."""
    width = scene.q_heads * scene.head_dim
    kdim, vdim = scene.kv_heads * scene.head_dim, scene.kv_heads * scene.v_head_dim
    options = {
        "bias=False": not spec.bias,
        "add_zero_attn=True": spec.add_zero_attn,
        f"kdim={kdim}": kdim != width,
        f"vdim={vdim}": vdim != width,
        "batch_first=True": spec.batch_first,
    }
    given = [str(width), str(scene.q_heads), *(text for text, used in options.items() if used)]
    made = f"module = torch.nn.MultiheadAttention({', '.join(given)})"
    return [f"{made}.eval()" if spec.mode == "eval" else made]


def _form(hidden: str, scene: Scene, form: str) -> str:
    """The mask `hidden`, True where nothing is seen, in its form."""
    if form == "bool":
        return hidden
    like = hidden.removeprefix("~")
    zeros = f"torch.zeros({like}.shape{dtype_argument(scene.program.q.dtype)})"
    return f'{zeros}.masked_fill({hidden}, float("-inf"))'


def _projections(scene: Scene, spec: MultiheadAttention) -> list[str]:
    """Statements that project q, k and v, and split them into heads."""
    lines = ["q, k, v = (t.transpose(1, 2).flatten(2) for t in (q, k, v))"]
    if spec.self_attention:
        lines = ["q = k = v = q.transpose(1, 2).flatten(2)"]
    names = ["q_weight", "k_weight", "v_weight"]
    if "in_proj_weight" in _parameters(scene, spec):
        lines.append(f"{', '.join(names)} = in_weight.chunk(3)")
    if spec.bias:
        lines.append("q_bias, k_bias, v_bias = in_bias.chunk(3)")
    for name in ("q", "k", "v"):
        bias = f", {name}_bias" if spec.bias else ""
        split = f".unflatten(2, ({scene.q_heads}, {scene.head_dim})).transpose(1, 2)"
        lines.append(f"{name} = F.linear({name}, {name}_weight{bias}){split}")
    return lines


PLUGIN = MultiheadAttentionPlugin()
