"""`torch.nn.MultiheadAttention`: how it is written, and what it supports and refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attnfuzz.generators.kernels import padding
from attnfuzz.generators.kernels.base import Body, Inputs, Meaning
from attnfuzz.generators.kernels.modules import ModulePlugin, drawn, weight
from attnfuzz.generators.kernels.multihead_attention import rules
from attnfuzz.generators.kernels.multihead_attention.spec import MultiheadAttention
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.dense import dense_mask, full_shape
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import tuple_of


def hints_without_mask(program: Program) -> bool:
    """The program gives the hint that its mask is causal, and no mask."""
    kernel = program.kernel
    return isinstance(kernel, MultiheadAttention) and kernel.is_causal and program.mask is None


class MultiheadAttentionPlugin(ModulePlugin[MultiheadAttention]):
    """The module is a global, called through `torch.func.functional_call` with weights that are
    inputs: so they have gradients, and every precision in which the program is judged."""

    spec_class = MultiheadAttention
    labels = ("module: multi-headed-attention",)
    interchangeable = False
    has_fast_path = True
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
        inputs = Inputs(globals=_module(scene, spec) if spec.called == "module" else [])
        self._weights(scene, spec, inputs)
        if scene.program.mask is not None:
            inputs.statements += self._mask(scene, spec)
            inputs.arguments.append("attn_mask")
            inputs.floating += ["attn_mask"] * (spec.mask_form != "bool")
        if spec.key_padding != "none":
            padded = "padded[0]" if spec.unbatched else "padded"
            form = padding.formed(padded, scene, spec.key_padding)
            inputs.statements.append(padding.padding(scene.kv_len, scene.batch))
            inputs.statements.append(f"key_padding_mask = {form}")
            inputs.arguments.append("key_padding_mask")
            inputs.floating += ["key_padding_mask"] * (spec.key_padding == "float")
        if spec.nested:
            inputs.statements.append(f"lengths = {padding.kept(scene.kv_len, scene.batch)}")
            inputs.arguments.append("lengths")
        return inputs

    def _weights(self, scene: Scene, spec: MultiheadAttention, inputs: Inputs) -> None:
        """The module's parameters, of variance 1 / fan-in, so that projections keep the scale."""
        unused = {"key": ["k"], "value": ["v"], "both": ["k", "v"]}.get(spec.static, [])
        for name, shape in _parameters(scene, spec).items():
            of_static = name in [f"{each}_proj_weight" for each in unused]
            trained = scene.program.training is not None and not of_static
            weight(inputs, _argument(name), drawn(scene, shape), trained)

    def _mask(self, scene: Scene, spec: MultiheadAttention) -> list[str]:
        mask = scene.program.mask
        assert mask is not None
        shape = full_shape(scene, () if spec.mask_rank == 3 else ("b", "h"))
        lines = dense_mask(mask, scene, "mask", shape if spec.mask_rank == 3 else shape[2:])
        hidden = "~mask.flatten(0, 1)" if spec.mask_rank == 3 else "~mask"
        lines.append(f"attn_mask = {padding.formed(hidden, scene, spec.mask_form)}")
        if spec.mask_form == "biased":
            lines.append(padding.biased("attn_mask", scene.q_len, scene.kv_len))
        return lines

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        statements = _merged(spec)
        options: dict[str, str] = {
            name: name for name in ("attn_mask", "key_padding_mask") if name in inputs.arguments
        }
        options |= {"need_weights": "False"} if spec.need_weights == "none" else {}
        options |= {"average_attn_weights": "False"} if spec.need_weights == "heads" else {}
        options |= {"is_causal": "True"} if spec.is_causal else {}
        if spec.called == "function":
            call = _function_call(scene, spec, options)
        else:
            entries = [f'"{name}": {_argument(name)}' for name in _parameters(scene, spec)]
            given = [f'"{name}": {value}' for name, value in options.items()]
            statements.append(f"parameters = {{{', '.join(entries)}}}")
            statements.append(f"options = {{{', '.join(given)}}}")
            names = "query, query, query" if spec.self_attention else "query, key, value"
            call = f"torch.func.functional_call(module, parameters, ({names}), options)"
        if spec.need_weights != "none":
            return Body(["out", "weights"], [*statements, f"out, weights = {call}"])
        if spec.nested:
            shape = tuple_of((scene.batch, scene.q_len, scene.q_heads * scene.head_dim))
            return Body([f"out.to_padded_tensor(0.0, {shape})"], [*statements, f"out, _ = {call}"])
        return Body([f"{call}[0]"], statements)

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        if spec.nested:
            modify.append(f"padded = torch.arange({scene.kv_len}) >= lengths[:, None]")
            modify.append('scores = scores.masked_fill(padded[:, None, None], float("-inf"))')
        for name in ("attn_mask", "key_padding_mask"):
            if name in inputs.arguments:
                mask: str = name if spec.unbatched else "key_padding_mask[:, None, None]"
                if name == "attn_mask":
                    heads = f"({scene.batch}, {scene.q_heads})"
                    mask = name if spec.mask_rank == 2 else f"{name}.unflatten(0, {heads})"
                mask = f"F.pad({mask}, (0, 1))" if spec.add_bias_kv else mask
                added = name in inputs.floating
                text = f"scores + {mask}" if added else f'scores.masked_fill({mask}, float("-inf"))'
                modify.append(f"scores = {text}")
        if spec.add_zero_attn:
            modify.append("scores, v = F.pad(scores, (0, 1)), F.pad(v, (0, 0, 0, 1))")
        bias = ", out_bias" if spec.bias else ""
        finish = f"F.linear({{out}}.transpose({{heads}}, {{length}}).flatten(2), out_weight{bias})"
        entry = "[0]" if spec.unbatched else ""
        if spec.nested:
            finish += ".masked_fill(padded[..., None], 0)"
        elif not (spec.batch_first or spec.unbatched):
            finish += ".transpose(0, 1)"
        weights = "torch.softmax(scores, dim=-1)"
        weights += ".mean(dim=1)" if spec.need_weights == "averaged" else ""
        return Meaning(
            scene.scale_text(None),
            modify,
            prepare=_projections(scene, spec),
            finish=finish + entry,
            further={"weights": weights + entry},
        )

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        none = self.spec(scene.program).need_weights == "none"
        return ("out",) if none else ("out", "weights")

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        return rules.problems(program, self.spec(program))

    # How its programs are simplified.

    def plain(self, kernel: MultiheadAttention) -> MultiheadAttention:
        return MultiheadAttention(self_attention=kernel.self_attention, mode=kernel.mode)

    def fitted(self, program: Program) -> Program:
        kernel, p = self.spec(program), changed(program, score_mod=None)
        if p.mask is None:
            kernel = changed(kernel, mask_form="bool", mask_rank=2, is_causal=False)
        elif kernel.is_causal and p.mask != Causal():
            kernel = changed(kernel, is_causal=False)
        if kernel.called == "module":
            kernel = changed(kernel, separate_weights=False, static="none")
        return changed(p, kernel=kernel)


def _parameters(scene: Scene, spec: MultiheadAttention) -> dict[str, tuple[int, ...]]:
    """The module's parameters and their shapes: one weight for q, k and v where these are as wide
    as the module, else three."""
    width = scene.q_heads * scene.head_dim
    kdim, vdim = scene.kv_heads * scene.head_dim, scene.kv_heads * scene.v_head_dim
    shapes: dict[str, tuple[int, ...]] = {"in_proj_weight": (3 * width, width)}
    if _separate(scene, spec):
        shapes = {
            "q_proj_weight": (width, width),
            "k_proj_weight": (width, kdim),
            "v_proj_weight": (width, vdim),
        }
    shapes |= {"in_proj_bias": (3 * width,)} if spec.bias else {}
    shapes |= {"bias_k": (1, 1, width), "bias_v": (1, 1, width)} if spec.add_bias_kv else {}
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
        "add_bias_kv=True": spec.add_bias_kv,
        "add_zero_attn=True": spec.add_zero_attn,
        f"kdim={kdim}": kdim != width,
        f"vdim={vdim}": vdim != width,
        "batch_first=True": spec.batch_first,
    }
    given = [str(width), str(scene.q_heads), *(text for text, used in options.items() if used)]
    made = f"module = torch.nn.MultiheadAttention({', '.join(given)})"
    return [f"{made}.eval()" if spec.mode == "eval" else made]


def _separate(scene: Scene, spec: MultiheadAttention) -> bool:
    """Whether q, k and v have a weight each."""
    width = scene.q_heads * scene.head_dim
    kdim, vdim = scene.kv_heads * scene.head_dim, scene.kv_heads * scene.v_head_dim
    return spec.separate_weights or (kdim, vdim) != (width, width)


def _merged(spec: MultiheadAttention) -> list[str]:
    """Statements for query, key and value: of q, k and v `[B, H, L, D]`, as they are called for."""
    entry = "[0]" if spec.unbatched else ""
    merged = "transpose(1, 2)" if spec.batch_first else "permute(2, 0, 1, 3)"
    merged, heads = ("transpose(0, 1)", 1) if spec.unbatched else (merged, 2)
    names = ("query",) if spec.self_attention else ("query", "key", "value")
    pairs = zip(names, ("q", "k", "v"), strict=False)
    lines = [f"{name} = {source}{entry}.{merged}.flatten({heads})" for name, source in pairs]
    if spec.nested:
        entries = "[entry[:n] for entry, n in zip(query, lengths.tolist())]"
        lines.append(f"query = torch.nested.as_nested_tensor({entries})")
    return lines


def _function_call(scene: Scene, spec: MultiheadAttention, options: Mapping[str, str]) -> str:
    """The call of the function that the module calls; `options` are those that both take."""
    separate = _separate(scene, spec)
    further = dict(options)
    if separate:
        names = {f"{name}_proj_weight": f"{name}_weight" for name in ("q", "k", "v")}
        further |= {"use_separate_proj_weight": "True", **names}
    for name, tensor in (("key", "k"), ("value", "v")):
        if spec.static in (name, "both"):
            further[f"static_{tensor}"] = f"{tensor}.flatten(0, 1)"
    further |= {"training": "False"} if spec.mode == "eval" else {}
    arguments = [
        *(("query",) * 3 if spec.self_attention else ("query", "key", "value")),
        str(scene.q_heads * scene.head_dim),
        str(scene.q_heads),
        "None" if separate else "in_weight",
        "in_bias" if spec.bias else "None",
        *(("bias_k", "bias_v") if spec.add_bias_kv else ("None", "None")),
        str(spec.add_zero_attn),
        "0.0",
        "out_weight",
        "out_bias" if spec.bias else "None",
        *(f"{name}={value}" for name, value in further.items()),
    ]
    return f"F.multi_head_attention_forward({', '.join(arguments)})"


def _projections(scene: Scene, spec: MultiheadAttention) -> list[str]:
    """Statements that project q, k and v, but those that are static, and split them into heads."""
    static = {"key": "k", "value": "v", "both": "kv"}.get(spec.static, "")
    names = [name for name in ("q", "k", "v") if name not in static]
    lines = [f"{', '.join(names)} = (t.transpose(1, 2).flatten(2) for t in ({', '.join(names)}))"]
    if spec.self_attention:
        lines = ["q = k = v = q.transpose(1, 2).flatten(2)"]
    elif names == ["q"]:
        lines = ["q = q.transpose(1, 2).flatten(2)"]
    for what in ("weight", "bias"):
        parts = [f"{name}_{what}" if name in names else "_" for name in ("q", "k", "v")]
        if (what == "bias" and spec.bias) or (what == "weight" and not _separate(scene, spec)):
            lines.append(f"{', '.join(parts)} = in_{what}.chunk(3)")
    split = f".unflatten(2, ({scene.q_heads}, {scene.head_dim})).transpose(1, 2)"
    for name in names:
        bias = f", {name}_bias" if spec.bias else ""
        projected = f"F.linear({name}, {name}_weight{bias})"
        if spec.add_bias_kv and name != "q":
            extra = f"bias_{name}.expand({scene.batch}, 1, -1)"
            lines.append(f"{name} = torch.cat(({projected}, {extra}), dim=1)")
            projected = name
        lines.append(f"{name} = {projected}{split}")
    return lines


PLUGIN = MultiheadAttentionPlugin()
