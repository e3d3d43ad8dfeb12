"""Attention of Hugging Face transformers, written down."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.transformers import rules, seen
from attnfuzz.generators.kernels.transformers.refusals import REFUSALS
from attnfuzz.generators.kernels.transformers.spec import Transformers
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.sizes import total

FORWARD = {
    "sdpa": ("transformers.integrations.sdpa_attention", "sdpa_attention_forward"),
    "eager": ("transformers.models.llama.modeling_llama", "eager_attention_forward"),
    "flex_attention": ("transformers.integrations.flex_attention", "flex_attention_forward"),
}
CAPPED = ("transformers.models.gemma2.modeling_gemma2", "eager_attention_forward")
"""Eager attention that knows a softcap."""

CACHES = {"dynamic": "DynamicCache", "static": "StaticCache"}


class TransformersPlugin(KernelPlugin[Transformers]):
    """The mask that is meant, `seen`, is an argument of its own: the reference hides what it says,
    and queries that see nothing have a result of 0, as no implementation promises another."""

    spec_class = Transformers
    package = "transformers"
    interchangeable = False
    refusals = REFUSALS

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs(imports=_imports(spec), globals=_module(scene, spec))
        seen.add(scene, spec, inputs)
        if spec.made == "outside":
            inputs.statements.append(_mask(spec, inputs))
            inputs.arguments.append("mask")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        statements = _cached(scene, spec, inputs)
        if spec.made == "inside" and spec.cache == "none":
            statements.append(_mask(spec, inputs))
        scaling = "module.scaling" if spec.scale is None else repr(spec.scale)
        given = ["module", "q", "k", "v", "mask", f"scaling={scaling}"]
        given += [f"softcap={spec.softcap!r}"] if spec.softcap else []
        given += [] if seen.causal(spec) else ["is_causal=False"]
        statements.append(f"out, _ = {_forward(spec)[1]}({', '.join(given)})")
        result = "out.transpose(1, 2)"
        if seen.some_see_nothing(scene, spec):
            result += ".masked_fill(~seen.any(dim=-1, keepdim=True), 0)"
        return Body([result], statements)

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        if spec.softcap:
            modify.append(f"scores = {spec.softcap!r} * torch.tanh(scores / {spec.softcap!r})")
        modify.append('scores = scores.masked_fill(~seen, float("-inf"))')
        dead = seen.some_see_nothing(scene, spec)
        return Meaning(scene.scale_text(spec.scale), modify, zero_dead_rows=dead)

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        return rules.problems(program, self.spec(program))

    def depends_on_batch(self, kernel: Transformers) -> bool:
        return kernel.padding != "none"

    # How its programs are simplified.

    def features(self, program: Program) -> Iterator[str]:
        kernel = self.spec(program)
        yield from super().features(program)
        for name, chosen in (
            ("sequences", kernel.sequences > 1),
            ("block", kernel.block > 0),
            ("updates", kernel.updates > 1),
            ("spare", kernel.spare > 0),
            ("softcap", kernel.softcap > 0),
            ("window.1", rules.windowed(kernel) and kernel.window == 1),
        ):
            if chosen:
                yield f"kernel.transformers.{name}"

    def plain(self, kernel: Transformers) -> Transformers:
        return Transformers(implementation=kernel.implementation)

    def fitted(self, program: Program) -> Program:
        kernel = rules.fitted(program, self.spec(program))
        return changed(program, kernel=kernel, score_mod=None)


def _forward(spec: Transformers) -> tuple[str, str]:
    """The module and the name of the implementation's attention function."""
    capped = spec.softcap > 0 and spec.implementation == "eager"
    return CAPPED if capped else FORWARD[spec.implementation]


def _imports(spec: Transformers) -> list[str]:
    names = ["LlamaConfig", *([CACHES[spec.cache]] if spec.cache != "none" else [])]
    module, function = _forward(spec)
    llama = "transformers.models.llama.modeling_llama"
    together = [function] if module == llama else []
    return [
        f"from transformers import {', '.join(sorted(names))}",
        f"from transformers.masking_utils import {seen.CREATE[spec.pattern]}",
        f"from {llama} import {', '.join(['LlamaAttention', *together])}",
        *([] if together else [f"from {module} import {function}"]),
    ]


def _module(scene: Scene, spec: Transformers) -> list[str]:
    """Statements for the configuration, and for the layer that the attention function is told
    about. It reads of it how many queries share a key, the scale and whether it trains."""
    sizes = {
        "hidden_size": scene.q_heads * scene.head_dim,
        "num_attention_heads": scene.q_heads,
        "num_key_value_heads": scene.kv_heads,
        "head_dim": scene.head_dim,
    }
    given = ["**sizes", f'attn_implementation="{spec.implementation}"']
    if rules.windowed(spec):
        name = "attention_chunk_size" if spec.pattern == "chunked" else "sliding_window"
        given.append(f"{name}={spec.window}")
    if spec.cache != "none":
        given.append("num_hidden_layers=1")
    entries = ", ".join(f'"{name}": {size}' for name, size in sizes.items())
    trains = "" if scene.program.training is not None else ".eval()"
    return [
        f"sizes = {{{entries}}}",
        f"config = LlamaConfig({', '.join(given)})",
        f"module = LlamaAttention(config, 0){trains}",
    ]


def _mask(spec: Transformers, inputs: Inputs, cache: str = "None") -> str:
    """The statement that makes the mask."""
    padded = "attention_mask" if spec.padding != "none" else "None"
    given = ["config", "q[:, 0]", padded]
    given += [cache] if seen.causal(spec) else []
    given += ["position_ids=position_ids"] if spec.sequences > 1 else []
    given += [f"{spec.overlay}_mask_function=mask_mod"] if inputs.mods else []
    given += ["block_sequence_ids=block_sequence_ids"] if spec.block else []
    return f"mask = {seen.CREATE[spec.pattern]}({', '.join(given)})"


def _cached(scene: Scene, spec: Transformers, inputs: Inputs) -> list[str]:
    """Statements that fill the cache, make the mask and have k and v as the layer is handed them;
    a mask is made before the layer's own tokens are in the cache."""
    if spec.cache == "none":
        return []
    room = f", max_cache_len={total(scene.kv_len, spec.spare)}" if spec.cache == "static" else ""
    lines = [f"cache = {CACHES[spec.cache]}(config=config{room})"]
    new = ", ".join(f"{name}[:, :, {_past(scene)}:]" for name in ("k", "v"))
    if any(q_len < kv_len for q_len, kv_len in scene.lengths):
        old = ", ".join(f"{name}[:, :, :{_past(scene)}]" for name in ("k", "v"))
        if spec.updates == 1:
            lines.append(f"cache.update({old}, 0)")
        else:
            parts = f"t.chunk({spec.updates}, dim=2) for t in ({old})"
            lines.append(f"for part in zip(*({parts})):")
            lines += indented(["cache.update(*part, 0)"])
    else:
        new = "k, v"
    return [*lines, _mask(spec, inputs, "cache"), f"k, v = cache.update({new}, 0)"]


def _past(scene: Scene) -> str:
    """How many tokens are in the cache before the call."""
    if isinstance(scene.q_len, int) and isinstance(scene.kv_len, int):
        return str(scene.kv_len - scene.q_len)
    return f"{scene.kv_len} - {scene.q_len}"


PLUGIN = TransformersPlugin()
