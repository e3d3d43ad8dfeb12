"""torch's transformer layers: how they are called, and what they support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels import padding
from attnfuzz.generators.kernels.base import Body, Inputs
from attnfuzz.generators.kernels.modules import ModulePlugin, weight
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.kernels.transformer_layer import rules, weights
from attnfuzz.generators.kernels.transformer_layer.plain import plain_body
from attnfuzz.generators.kernels.transformer_layer.spec import TransformerLayer
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.dense import dense_mask, full_shape
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import commas, tuple_of

AWAY_FROM_0 = 12
"""How far, either way, the first linear layer's bias takes what goes into a relu that is trained:
without it that is about standard normal, after a layer norm. The derivative of relu jumps at 0,
where another rounding gives another gradient."""

ACTIVATION_MODULES = {
    "relu": "ReLU()", "gelu": "GELU()", "gelu_tanh": 'GELU(approximate="tanh")', "silu": "SiLU()",
}  # fmt: skip

SUMMED_ROW_BY_ROW = ("bfloat16", "float16")
"""The dtypes in which the parameters of layer norms have no gradient: on the CPU
`F.layer_norm` adds the rows up in them, so that 800 ones are 256 in bfloat16. That is a fault, but
none of attention's, and every program of more than a few hundred rows would stop at it."""


class TransformerLayerPlugin(ModulePlugin[TransformerLayer]):
    """The module is a global, called through `torch.func.functional_call` with weights that are
    inputs: so they have gradients, and every precision in which the program is judged."""

    spec_class = TransformerLayer
    interchangeable = False
    has_fast_path = True
    refusals = AUTOGRAD

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs(globals=_module(scene, spec))
        for prefix, stack in spec.stacks:
            self._weights(scene, stack, prefix, inputs)
        form = rules.form_of_padding(spec)
        own = padding.OwnKeys.of(scene)
        if scene.program.mask is not None:
            self._add_mask(inputs, "attn_mask", self._mask(own, spec), spec.mask_form)
        if spec.key_padding:
            lines = [padding.padding(scene.q_len, scene.batch)]
            lines.append(f"key_padding_mask = {padding.formed('padded', scene, form)}")
            self._add_mask(inputs, "key_padding_mask", lines, form)
        if spec.memory_mask:
            q_idx, kv_idx = f"torch.arange({scene.q_len})", f"torch.arange({scene.kv_len})"
            hidden = f"{q_idx}[:, None] < {kv_idx}"
            lines = [f"memory_mask = {hidden}"]
            if form == "float":
                lines = [
                    f"later = {hidden}",
                    f"memory_mask = {padding.formed('later', scene, form)}",
                ]
            self._add_mask(inputs, "memory_mask", lines, form)
        if spec.memory_padding:
            lines = [padding.padding(scene.kv_len, scene.batch)]
            lines.append(f"memory_key_padding_mask = {padding.formed('padded', scene, form)}")
            self._add_mask(inputs, "memory_key_padding_mask", lines, form)
        self._source_masks(scene, spec, inputs)
        if spec.nested:
            inputs.statements.append(f"lengths = {padding.kept(scene.q_len, scene.batch)}")
            inputs.arguments.append("lengths")
        return inputs

    def _source_masks(self, scene: Scene, spec: TransformerLayer, inputs: Inputs) -> None:
        form = rules.form_of_padding(spec)
        if spec.source_mask:
            idx = f"torch.arange({scene.kv_len})"
            lines = [f"later = {idx}[:, None] < {idx}"]
            lines.append(f"source_mask = {padding.formed('later', scene, form)}")
            self._add_mask(inputs, "source_mask", lines, form)
        if spec.source_padding:
            lines = [padding.padding(scene.kv_len, scene.batch)]
            lines.append(f"source_key_padding_mask = {padding.formed('padded', scene, form)}")
            self._add_mask(inputs, "source_key_padding_mask", lines, form)

    def _weights(self, scene: Scene, spec: TransformerLayer, prefix: str, inputs: Inputs) -> None:
        """Matrices have variance 1 / their columns, so that they keep the scale; layer norms are
        about 1."""
        trained = scene.program.training is not None
        stack = (spec.num_layers,) if spec.num_layers else ()
        kind, width = dtype_argument(scene.program.q.dtype), scene.q_heads * scene.head_dim
        for name, shape in weights.matrices(scene, spec).items():
            drawn = f"torch.randn({commas((*stack, *shape))}{kind}) / {shape[-1]} ** 0.5"
            weight(inputs, f"{prefix}{name}", drawn, trained)
        if spec.bias:
            lengths = weights.biases(scene, spec)
            drawn = f"torch.randn({commas((*stack, sum(lengths.values())))}{kind})"
            kinked = trained and spec.activation == "relu"
            weight(inputs, f"{prefix}biases", drawn, trained and not kinked)
            if kinked:
                end = sum(lengths.values()) - width
                first = end - spec.feedforward
                inputs.statements += [
                    f"{prefix}biases[..., {first}:{end}:2] = {AWAY_FROM_0}",
                    f"{prefix}biases[..., {first + 1}:{end}:2] = -{AWAY_FROM_0}",
                    f"{prefix}biases.requires_grad_()",
                ]
                inputs.learnable.append(f"{prefix}biases")
        rows = len(weights.each_norm(spec))
        shape = (*stack, rows * weights.norms(spec), width)
        exact = trained and scene.program.q.dtype not in SUMMED_ROW_BY_ROW
        drawn = f"torch.rand({commas(shape)}{kind}) + 0.5"
        weight(inputs, f"{prefix}norms", drawn, exact)
        if spec.final_norm:
            drawn = f"torch.rand({rows}, {width}{kind}) + 0.5"
            weight(inputs, f"{prefix}final_norm", drawn, exact)

    def _add_mask(self, inputs: Inputs, name: str, lines: list[str], form: str) -> None:
        inputs.statements += lines
        inputs.arguments.append(name)
        inputs.floating += [name] * (form != "bool")

    def _mask(self, own: Scene, spec: TransformerLayer) -> list[str]:
        mask = own.program.mask
        assert mask is not None
        if spec.mask_form == "square":
            kind = dtype_argument(own.program.q.dtype)
            made = f"torch.nn.Transformer.generate_square_subsequent_mask({own.q_len}{kind})"
            return [f"attn_mask = {made}"]
        shape = full_shape(own, () if spec.mask_rank == 3 else ("b", "h"))
        lines = dense_mask(mask, own, "mask", shape if spec.mask_rank == 3 else shape[2:])
        hidden = "~mask.flatten(0, 1)" if spec.mask_rank == 3 else "~mask"
        lines.append(f"attn_mask = {padding.formed(hidden, own, spec.mask_form)}")
        if spec.mask_form == "biased":
            lines.append(padding.biased("attn_mask", own.q_len, own.q_len))
        return lines

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        merged = "transpose(1, 2)" if spec.batch_first else "permute(2, 0, 1, 3)"
        of_q = "src" if spec.layer == "encoder" else "tgt"
        statements = [f"{of_q} = q.{merged}.flatten(2)"]
        given = f"({of_q},)"
        if spec.layer != "encoder":
            of_k = "memory" if spec.layer == "decoder" else "src"
            statements.append(f"{of_k} = k.{merged}.flatten(2)")
            given = "(tgt, memory)" if spec.layer == "decoder" else "(src, tgt)"
        if spec.nested:
            entries = "[entry[:n] for entry, n in zip(src, lengths.tolist())]"
            statements.append(f"src = torch.nested.as_nested_tensor({entries})")
        statements += weights.split(scene, spec)
        statements += weights.named(scene, spec)
        options = [f'"{name}": {value}' for name, value in _options(spec, inputs).items()]
        statements.append(f"options = {{{', '.join(options)}}}")
        call = f"torch.func.functional_call(module, parameters, {given}, options)"
        if spec.nested:
            shape = tuple_of((scene.batch, scene.q_len, scene.q_heads * scene.head_dim))
            return Body([f"out.to_padded_tensor(0.0, {shape})"], [*statements, f"out = {call}"])
        if rules.undefined_at_padding(spec):
            padded = "key_padding_mask[..., None]"
            padded = padded if rules.form_of_padding(spec) == "bool" else f"{padded} != 0"
            return Body([f"out.masked_fill({padded}, 0)"], [*statements, f"out = {call}"])
        return Body([call], statements)

    def plain_body(self, scene: Scene, inputs: Inputs) -> Body:
        return plain_body(scene, self.spec(scene.program), inputs)

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        return rules.problems(program, self.spec(program))

    # How its programs are simplified.

    def plain(self, kernel: TransformerLayer) -> TransformerLayer:
        return TransformerLayer(layer=kernel.layer, mode=kernel.mode)

    def underneath(self, program: Program) -> Iterator[Program]:
        """Each stack of a transformer by itself."""
        kernel = self.spec(program)
        if kernel.layer == "transformer":
            for _, stack in kernel.stacks:
                yield self.fitted(changed(program, kernel=stack))

    def smaller(self, program: Program) -> Iterator[TransformerLayer]:
        """An encoder instead of a decoder."""
        kernel = self.spec(program)
        if kernel.layer == "decoder":
            yield replace(kernel, layer="encoder")

    def fitted(self, program: Program) -> Program:
        kernel, p = self.spec(program), changed(program, score_mod=None)
        if not kernel.num_layers:
            kernel = changed(kernel, final_norm=False)
        if kernel.layer != "encoder" or not kernel.num_layers:
            kernel = changed(kernel, enable_nested_tensor=True, mask_check=True)
        if kernel.layer == "encoder":
            kernel = changed(kernel, memory_mask=False, memory_padding=False)
        if kernel.layer != "transformer":
            kernel = changed(kernel, source_mask=False, source_padding=False)
        else:
            hidden = rules.undefined_in_memory(kernel)
            kernel = changed(kernel, memory_padding=kernel.memory_padding or hidden)
        if not kernel.memory_mask:
            kernel = changed(kernel, memory_is_causal=False)
        if p.mask is None:
            kernel = changed(kernel, mask_rank=2, is_causal="unsaid")
            if kernel.mask_form in ("biased", "square") or not rules.has_masks_of_its_own(kernel):
                kernel = changed(kernel, mask_form="bool")
        elif p.mask != Causal():
            form = "float" if kernel.mask_form == "square" else kernel.mask_form
            said = "unsaid" if kernel.is_causal == "true" else kernel.is_causal
            kernel = changed(kernel, mask_form=form, is_causal=said)
        if kernel.is_causal == "unsaid" and rules.looks_for_causal(p, kernel):
            kernel = changed(kernel, is_causal="false")
        return changed(p, kernel=kernel)


def _module(scene: Scene, spec: TransformerLayer) -> list[str]:
    """Statements for the module itself; the parameters that it is made with are never used."""
    kind = {"encoder": "Encoder", "decoder": "Decoder"}.get(spec.layer, "")
    width = scene.q_heads * scene.head_dim
    options = {
        "dropout=0.0": spec.mode == "train",
        f"activation={_activation(spec)}": spec.activation != "relu" or spec.activation_module,
        "batch_first=True": spec.batch_first,
        "norm_first=True": spec.norm_first,
        "bias=False": not spec.bias,
    }
    count = [str(spec.num_layers)] * 2 if spec.layer == "transformer" else []
    sizes = [str(width), str(scene.q_heads), *count, str(spec.feedforward)]
    given = ", ".join([*sizes, *(text for text, used in options.items() if used)])
    mode = ".eval()" if spec.mode == "eval" else ""
    if spec.layer == "transformer":
        return [f"module = torch.nn.Transformer({given}){mode}"]
    layer = f"torch.nn.Transformer{kind}Layer({given})"
    if not spec.num_layers:
        return [f"module = {layer}{mode}"]
    bias = "" if spec.bias else ", bias=False"
    options = {
        f"norm=torch.nn.LayerNorm({width}{bias})": spec.final_norm,
        "enable_nested_tensor=False": not spec.enable_nested_tensor,
        "mask_check=False": not spec.mask_check,
    }
    given = ", ".join(["layer", str(spec.num_layers), *(t for t, used in options.items() if used)])
    return [f"layer = {layer}", f"module = torch.nn.Transformer{kind}({given}){mode}"]


def _activation(spec: TransformerLayer) -> str:
    if spec.activation_module:
        return f"torch.nn.{ACTIVATION_MODULES[spec.activation]}"
    return "F.silu" if spec.activation == "silu" else f'"{spec.activation}"'


def _options(spec: TransformerLayer, inputs: Inputs) -> dict[str, str]:
    """The keyword arguments of the call."""
    own = "src" if spec.layer == "encoder" else "tgt"
    stack = spec.layer == "encoder" and spec.num_layers > 0
    names = {
        "attn_mask": "mask" if stack else f"{own}_mask",
        "memory_mask": "memory_mask",
        "key_padding_mask": f"{own}_key_padding_mask",
        "memory_key_padding_mask": "memory_key_padding_mask",
        "source_mask": "src_mask",
        "source_key_padding_mask": "src_key_padding_mask",
    }
    options = {names[name]: name for name in names if name in inputs.arguments}
    if spec.is_causal != "unsaid":
        options["is_causal" if own == "src" else "tgt_is_causal"] = str(spec.is_causal == "true")
    if spec.source_mask and spec.is_causal != "unsaid":
        options["src_is_causal"] = str(spec.is_causal == "true")
    return options | ({"memory_is_causal": "True"} if spec.memory_is_causal else {})


PLUGIN = TransformerLayerPlugin()
