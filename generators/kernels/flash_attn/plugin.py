"""The functions of the flash_attn package, written down.

Its operators are registered for CUDA alone. On a CPU the same package runs over its own Triton
back-end, interpreted, once they are registered there too: the rendering says so in its first lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.flash_attn.spec import FlashAttn, KVCache
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Input, Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import Size, blocks, plus, product

FUNCTIONS = {
    "func": "flash_attn_func",
    "kvpacked": "flash_attn_kvpacked_func",
    "qkvpacked": "flash_attn_qkvpacked_func",
    "varlen": "flash_attn_varlen_func",
    "kvcache": "flash_attn_with_kvcache",
}
OPERATORS = {
    "varlen": ("_flash_attn_varlen_forward", "_flash_attn_varlen_backward"),
    "kvcache": (),  # calls its kernel without an operator
}
DTYPES = ("float16",)
"""On a CPU: flash_attn takes bfloat16 too, but Triton's interpreter has no matrix product of it."""

ON_CPU = {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE", "TRITON_INTERPRET": "1"}


class FlashAttnPlugin(KernelPlugin[FlashAttn]):
    """q, k and v are handed over as `[B, L, H, D]` views, `[total, H, D]` for varlen."""

    spec_class = FlashAttn
    package = "flash_attn"
    judged_in_issues_by = "flash_attn"
    interchangeable = False
    refusals = (
        Refusal(
            pattern=r"[kv]_cache must have contiguous last dimension",
            why="a cache is updated in place, so it is not made contiguous first",
        ),
    )

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs()
        if scene.device == "cpu":
            inputs = Inputs(environment=ON_CPU, set_up=registered(_operators(spec)))
        names = [FUNCTIONS[spec.function], *(["flash_attn_interface"] if inputs.set_up else [])]
        inputs.imports.append(f"from flash_attn import {', '.join(names)}")
        if spec.function == "varlen":
            for name, length in (("q", scene.q_len), ("k", scene.kv_len)):
                cuts = f"torch.tensor({_cuts(length, spec.sequences)}, dtype=torch.int32)"
                inputs.statements.append(f"cu_seqlens_{name} = {cuts}")
                inputs.arguments.append(f"cu_seqlens_{name}")
        if spec.function == "kvcache" and (spec.cache.append or spec.cache.ragged):
            inputs.statements.append(f"cache_seqlens = {_filled(scene, spec)}")
            inputs.arguments.append("cache_seqlens")
        if spec.function == "kvcache" and spec.cache.page_size:
            pages = product((scene.batch, blocks(scene.kv_len, spec.cache.page_size)))
            shuffled = f"torch.randperm({pages}, dtype=torch.int32)"
            inputs.statements.append(f"block_table = {shuffled}.view({scene.batch}, -1)")
            inputs.arguments.append("block_table")
        if spec.alibi != "none":
            heads = f"2.0 ** -torch.arange(1, {scene.q_heads + 1})"
            slopes = heads if spec.alibi == "heads" else f"({heads}).repeat({scene.batch}, 1)"
            inputs.statements.append(f"alibi_slopes = {slopes}")
            inputs.arguments.append("alibi_slopes")
            inputs.floating.append("alibi_slopes")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        statements, args, undone = _handed_over(scene, spec)
        args += _options(spec)
        return Body([f"{FUNCTIONS[spec.function]}({', '.join(args)}){undone}"], statements)

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, modify = self.spec(scene.program), []
        if spec.softcap:
            modify.append(f"scores = {spec.softcap!r} * torch.tanh(scores / {spec.softcap!r})")
        varlen, ragged = spec.function == "varlen", _is_ragged(spec)
        left, right = spec.window
        right = 0 if spec.causal else right
        positional = spec.alibi != "none" or left >= 0 or right >= 0
        if varlen or positional:
            modify += _distances(scene, spec)
        elif ragged:
            modify.append(f"kv_idx = torch.arange({scene.kv_len})")
        if spec.alibi != "none":
            slopes = "alibi_slopes[..., None, None]"
            modify.append(f"scores = scores - {slopes} * distance.abs()")
        conditions = [
            *(["(row[:, None] == col)"] if varlen else []),
            *(["(kv_idx < cache_seqlens[:, None, None, None])"] if ragged else []),
            *([f"(distance <= {left})"] if left >= 0 else []),
            *([f"(distance >= {-right})"] if right >= 0 else []),
        ]
        if conditions:
            mask = " & ".join(conditions)
            mask = mask.removeprefix("(").removesuffix(")") if len(conditions) == 1 else mask
            modify.append(f"mask = {mask}")
            modify.append('scores = scores.masked_fill(~mask, float("-inf"))')
        dead = varlen or ragged or spec.window != (-1, -1)
        dead = dead or any(q_len > kv_len for q_len, kv_len in scene.lengths)
        return Meaning(scene.scale_text(spec.scale), modify, bool(conditions) and dead)

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        for name in ("q", "k", "v"):
            if getattr(p, name).dtype not in DTYPES:
                yield Problem(f"{name}.dtype", "expected float16 for flash_attn on a CPU")
        if p.mask is not None:
            yield Problem("mask", "expected none: flash_attn has causal and window")
        for key, wrong in (
            ("transform", p.transform != "none"),
            ("autocast", p.autocast is not None),
            ("packed", p.packed != "none"),
        ):
            if wrong:
                yield Problem(key, "expected none with flash_attn")
        if p.shape.v_head_dim not in (None, p.shape.head_dim):
            yield Problem("shape.v_head_dim", "expected head_dim for flash_attn")
        if kernel.function == "qkvpacked":
            yield from _qkvpacked_problems(p)
        if kernel.function == "varlen":
            yield from _varlen_problems(p)
        if kernel.function == "kvcache":
            yield from _kvcache_problems(p, kernel.cache)

    def depends_on_batch(self, kernel: FlashAttn) -> bool:
        return kernel.alibi == "batch" or kernel.cache.ragged or bool(kernel.cache.page_size)

    def features(self, program: Program) -> Iterator[str]:
        kernel, prefix = self.spec(program), "kernel.flash_attn"
        yield from super().features(program)
        yield from choices(kernel.cache, f"{prefix}.cache")
        for name, chosen in (
            ("window", kernel.window != (-1, -1)),
            ("softcap", kernel.softcap),
            ("sequences", kernel.sequences > 1),
            ("cache.append", kernel.cache.append),
            ("cache.page_size", kernel.cache.page_size),
        ):
            if chosen:
                yield f"{prefix}.{name}"

    def plain(self, kernel: FlashAttn) -> FlashAttn:
        return FlashAttn(function=kernel.function)

    def fitted(self, program: Program) -> Program:
        q, k, v = (half(entry) for entry in (program.q, program.k, program.v))
        return changed(program, q=q, k=k, v=v, mask=None, score_mod=None)


def _qkvpacked_problems(p: Program) -> Iterator[Problem]:
    if p.shape.q_heads != p.shape.kv_heads:
        yield Problem("shape.q_heads", f"expected kv_heads ({p.shape.kv_heads}) for qkvpacked")
    for key, q_len, kv_len in lengths(p):
        if q_len != kv_len:
            yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}) for qkvpacked")


def _varlen_problems(p: Program) -> Iterator[Problem]:
    calls = (("shape", p.shape.batch), *((f"calls[{i}]", c.batch) for i, c in enumerate(p.calls)))
    for key, batch in calls:
        if batch != 1:
            yield Problem(f"{key}.batch", "expected 1 for varlen: it has sequences")


def _kvcache_problems(p: Program, cache: KVCache) -> Iterator[Problem]:
    if p.training is not None:
        yield Problem("training", "expected none: flash_attn_with_kvcache has no gradients")
    if bool(cache.append) + cache.ragged + bool(cache.page_size) > 1:
        yield Problem("kernel.cache", "expected one of append, ragged and page_size")
    for key, _, kv_len in lengths(p):
        if kv_len < cache.append:
            yield Problem(f"{key}.kv_len", f"expected append ({cache.append}) or more")
        if cache.page_size and (kv_len == 0 or kv_len % cache.page_size):
            yield Problem(f"{key}.kv_len", f"expected a multiple of {cache.page_size}, the page")


def half(entry: Input) -> Input:
    """The same in a dtype that runs on a CPU."""
    return entry if entry.dtype in DTYPES else replace(entry, dtype="float16")


def _operators(spec: FlashAttn) -> tuple[str, ...]:
    """The names of the operators that its function calls."""
    return OPERATORS.get(spec.function, ("_flash_attn_forward", "_flash_attn_backward"))


def registered(operators: tuple[str, ...]) -> list[str]:
    """Statements that register those of flash_attn's operators for the CPU."""
    if not operators:
        return []
    names = ", ".join(f'"{name}"' for name in operators)
    return [
        "# flash_attn registers its operators for CUDA alone.",
        f"for name in ({names}{',' * (len(operators) == 1)}):",
        "    operator = getattr(flash_attn_interface, name)",
        '    operator.register_kernel("cpu")(operator._init_fn)',
    ]


def _is_ragged(spec: FlashAttn) -> bool:
    return spec.function == "kvcache" and spec.cache.ragged


def _cuts(length: Size, sequences: int) -> str:
    """Where the sequences begin and end: their lengths grow as 1 : 2 : 3."""
    parts = sequences * (sequences + 1)
    steps = [i * (i + 1) for i in range(sequences + 1)]
    if isinstance(length, int):
        return str([length * step // parts for step in steps])
    return f"[{', '.join(f'{length} * {step} // {parts}' for step in steps)}]"


def _longest(length: Size, sequences: int) -> str:
    """`max_seqlen` of those sequences; where lengths differ from call to call, an upper bound."""
    if not isinstance(length, int):
        return length
    parts = sequences * (sequences + 1)
    cuts = [length * i * (i + 1) // parts for i in range(sequences + 1)]
    return str(max(b - a for a, b in zip(cuts, cuts[1:], strict=False)))


def _filled(scene: Scene, spec: FlashAttn) -> str:
    """How far each batch entry's cache is filled before the call."""
    if not spec.cache.ragged:
        filled = plus(scene.kv_len, -spec.cache.append)
        return f"torch.full(({scene.batch},), {filled}, dtype=torch.int32)"
    return f"({scene.kv_len} - 3 * torch.arange({scene.batch}, dtype=torch.int32)).clamp(min=0)"


def _handed_over(scene: Scene, spec: FlashAttn) -> tuple[list[str], list[str], str]:
    """Statements before the call, its first arguments, and what brings its result back."""
    views = [f"{name}.transpose(1, 2)" for name in ("q", "k", "v")]
    match spec.function:
        case "kvpacked":
            stacked = f"kv = torch.stack(({views[1]}, {views[2]}), dim=2)"
            return [stacked], [views[0], "kv"], ".transpose(1, 2)"
        case "qkvpacked":
            return [f"qkv = torch.stack(({', '.join(views)}), dim=2)"], ["qkv"], ".transpose(1, 2)"
        case "varlen":
            flat = [f"{name}[0].transpose(0, 1)" for name in ("q", "k", "v")]
            longest = [_longest(n, spec.sequences) for n in (scene.q_len, scene.kv_len)]
            cut = ["cu_seqlens_q", "cu_seqlens_k", *longest]
            return [], [*flat, *cut], ".transpose(0, 1)[None]"
        case "kvcache":
            statements, args = _cached(scene, spec, views)
            return statements, args, ".transpose(1, 2)"
    return [], views, ".transpose(1, 2)"


def _cached(scene: Scene, spec: FlashAttn, views: list[str]) -> tuple[list[str], list[str]]:
    """The cache: k and v themselves, with room where new ones are appended, or in pages."""
    cache = spec.cache
    args = [views[0], "k_cache", "v_cache"]
    lines = [f"k_cache, v_cache = {views[1]}, {views[2]}"]
    if cache.append:
        old = plus(scene.kv_len, -cache.append)
        lines = [
            "k_cache, v_cache = (t.transpose(1, 2).clone() for t in (k, v))",
            f"k_new, v_new = (t[:, {old}:].clone() for t in (k_cache, v_cache))",
            f"k_cache[:, {old}:], v_cache[:, {old}:] = 0, 0",
        ]
        args += ["k_new", "v_new"]
    elif cache.page_size:
        size = cache.page_size
        lines = [
            "place = block_table.flatten().argsort()",
            f"k_cache = {views[1]}.unflatten(1, (-1, {size})).flatten(0, 1)[place]",
            f"v_cache = {views[2]}.unflatten(1, (-1, {size})).flatten(0, 1)[place]",
        ]
        args.append("block_table=block_table")
    if cache.append or cache.ragged:
        args.append("cache_seqlens=cache_seqlens")
    return lines, args


def _options(spec: FlashAttn) -> list[str]:
    """Keyword arguments that are not the defaults."""
    given = {
        "softmax_scale": None if spec.scale is None else repr(spec.scale),
        "causal": "True" if spec.causal else None,
        "window_size": None if spec.window == (-1, -1) else str(spec.window),
        "softcap": repr(spec.softcap) if spec.softcap else None,
        "alibi_slopes": "alibi_slopes" if spec.alibi != "none" else None,
        "deterministic": "True" if spec.deterministic and spec.function != "kvcache" else None,
    }
    return [f"{name}={text}" for name, text in given.items() if text is not None]


def _distances(scene: Scene, spec: FlashAttn) -> list[str]:
    """Statements for `distance` `[Lq, Lkv]` (or with batch and heads before): how far each key lies
    to the left of the one that its query is aligned with."""
    if spec.function == "varlen":
        cuts = [(f"cu_seqlens_{side}", n) for side, n in (("q", scene.q_len), ("k", scene.kv_len))]
        owner = "torch.bucketize(torch.arange({n}), {cuts}[1:], right=True)"
        return [
            f"row = {owner.format(n=cuts[0][1], cuts=cuts[0][0])}",
            f"col = {owner.format(n=cuts[1][1], cuts=cuts[1][0])}",
            f"from_end_q = cu_seqlens_q[row + 1] - torch.arange({scene.q_len})",
            f"from_end_k = cu_seqlens_k[col + 1] - torch.arange({scene.kv_len})",
            "distance = from_end_k - from_end_q[:, None]",
        ]
    rows, columns = f"torch.arange({scene.q_len})", f"torch.arange({scene.kv_len})"
    if _is_ragged(spec):
        shift = f"cache_seqlens[:, None, None, None] - {scene.q_len}"
        return [f"kv_idx = {columns}", f"distance = {rows}[:, None] + {shift} - kv_idx"]
    ahead = "" if scene.q_len == scene.kv_len else f" + {scene.kv_len} - {scene.q_len}"
    return [f"distance = {rows}[:, None]{ahead} - {columns}"]


PLUGIN = FlashAttnPlugin()
