"""Attention of TorchTitan, written down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.conditions import differentiates
from attnfuzz.generators.kernels.dealing import dealt, gathered, zigzag
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.packing import cuts
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD, MESH
from attnfuzz.generators.kernels.system_rules import without
from attnfuzz.generators.kernels.torchtitan.spec import Torchtitan
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.mods import mask_mod
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import commas

MODULES = {"sdpa": "ScaledDotProductAttention", "flex": "FlexAttention"}
CHECKPOINTS = {"full": "FullAC", "selective": "SelectiveAC"}
DOCUMENTS = {
    "ids": "get_document_mask_mod",
    "bounds": "get_efficient_causal_mask_mod_for_packed_document",
}
BLOCK = 128
"""Tokens of a block of a BlockMask, by default."""

_SHARED = "kernel.torchtitan.context_parallel"
"""The feature of context parallelism, however the length is cut."""

PATTERNS = {
    "causal": "get_causal_mask_mod()",
    "window": "get_sliding_window_mask_mod({})",
    "fixed_block": "get_fixed_block_mask_mod({})",
}


def differentiates_flex(program: Program) -> bool:
    """Whether it trains with FlexAttention."""
    kernel = program.kernel
    return isinstance(kernel, Torchtitan) and kernel.module == "flex" and differentiates(program)


class TorchtitanPlugin(KernelPlugin[Torchtitan]):
    """With flex, the mask that is meant, `seen`, is an argument of its own for the reference."""

    spec_class = Torchtitan
    package = "torchtitan"
    interchangeable = False
    spreads_itself = True
    refusals = (
        Refusal(
            pattern=r"FlexAttention does not support backward on (CPU|MPS)\.",
            why="flex_attention has no backward on this device",
            needs=differentiates_flex,
        ),
        *MESH,
        *AUTOGRAD,
    )

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        inputs = Inputs(imports=_imports(spec, scene), globals=_module(spec, scene))
        if spec.documents != "none":
            inputs.statements += _documents(spec, scene)
        if scene.program.mask is not None:
            mod = mask_mod(scene.program.mask, scene, scene.extents, "function")
            inputs.mods.append(mod)
            inputs.statements += mod.statements
            if not mod.is_function:
                inputs.statements.append(f"mask_mod = {mod.made}")
        if spec.module == "flex":
            if _factories(spec, scene) and not _is_causal(scene.program):
                inputs.statements += _seen(spec, scene)
                inputs.arguments.append("seen")
                inputs.meant = ("seen",)
            inputs.statements += _block_mask(spec, scene)
            inputs.arguments.append("block_mask")
            if spec.context_parallel != "none":
                shard = "cp_shard(MESH, (q.transpose(1, 2),), block_mask, None)"
                inputs.statements.append(f"_, block_mask = {shard}")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        parallel = spec.context_parallel != "none"
        args = [f"{name}{'' if parallel else '.transpose(1, 2)'}" for name in ("q", "k", "v")]
        if spec.module == "flex":
            args.append("attention_masks=block_mask")
        elif spec.pattern == "all":
            args.append("is_causal=False")
        if spec.scale is not None:
            args.append(f"scale={spec.scale!r}")
        if is_grouped(scene.program):
            args.append("enable_gqa=True")
        call = f"inner_attention({', '.join(args)})"
        if not parallel:
            return Body([f"{call}.transpose(1, 2)"])
        order = None
        if scene.program.mesh is not None and spec.context_parallel == "headtail":
            order = zigzag(scene.q_len, scene.program.mesh.world_size)
        statements, result = gathered(call, order)
        return Body([result], [*dealt(order), *statements])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec, lines = self.spec(scene.program), []
        if _is_causal(scene.program):
            extents = commas((scene.q_len, scene.kv_len))
            unseen = f"torch.ones({extents}, dtype=torch.bool).triu(1)"
            lines.append(f'scores = scores.masked_fill({unseen}, float("-inf"))')
        elif spec.module == "flex" and _factories(spec, scene):
            lines.append('scores = scores.masked_fill(~seen, float("-inf"))')
        dead = scene.program.mask is not None
        return Meaning(scene.scale_text(spec.scale), lines, dead)

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        yield from without(p, "torchtitan", mesh=True)
        for key, q_len, kv_len in lengths(p):
            if not q_len or q_len != kv_len:
                yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}), and at least 1")
        yield from _mesh_problems(p, kernel)
        sdpa = kernel.module == "sdpa"
        causal = kernel.pattern in ("causal", "window")
        for key, wrong, why in (
            ("mask", sdpa and p.mask is not None, "none: the module of SDPA has no mask"),
            ("kernel.documents", sdpa and kernel.documents != "none", "none with SDPA"),
            ("kernel.pattern", sdpa and kernel.pattern not in ("causal", "all"), "causal or all"),
            (
                "kernel.documents",
                kernel.documents == "bounds" and not causal,
                "another: bounds are half of a causal mask",
            ),
        ):
            if wrong:
                yield Problem(key, f"expected {why}")

    def distributable(self, kernel: Torchtitan) -> bool:
        return kernel.context_parallel != "none"

    def depends_on_batch(self, kernel: Torchtitan) -> bool:
        """Documents differ between entries."""
        return kernel.documents != "none"

    # How its programs are simplified.

    def features(self, program: Program) -> Iterator[str]:
        kernel = self.spec(program)
        for feature in super().features(program):
            yield _SHARED if feature == f"{_SHARED}.plain" else feature
        if kernel.context_parallel == "headtail":  # what plain parts do, and an order
            yield _SHARED
        if kernel.documents != "none" and kernel.sequences > 2:
            yield "kernel.torchtitan.sequences"

    def plain(self, kernel: Torchtitan) -> Torchtitan:
        return Torchtitan(module=kernel.module, context_parallel=kernel.context_parallel)

    def in_blocks(self, kernel: Torchtitan, length: int) -> Torchtitan:
        return changed(kernel, block_size=length)

    def fitted(self, program: Program) -> Program:
        """The length is the longest that the ranks can share, of those that are not longer."""
        kernel = self.spec(program)
        if kernel.module == "sdpa":
            pattern: Literal["all", "causal"] = "all" if kernel.pattern == "all" else "causal"
            kernel = changed(kernel, documents="none", pattern=pattern, block_size=128)
        if kernel.documents == "none":
            kernel = changed(kernel, sequences=Torchtitan().sequences)
        if kernel.pattern not in ("window", "fixed_block"):
            kernel = changed(kernel, window=Torchtitan().window)
        if program.mesh is None or kernel.context_parallel == "none":
            kernel = changed(kernel, context_parallel="none")
            program = changed(program, mesh=None)
        elif kernel.module == "flex":
            kernel = changed(kernel, context_parallel="plain", block_size=128)
        mask = program.mask if kernel.module == "flex" else None
        p = changed(program, kernel=kernel, mask=mask, score_mod=None)
        if p.mesh is None:
            return p
        parts = _parts(p.mesh.world_size, kernel)
        length = max(p.shape.q_len // parts, 1) * parts
        return changed(p, shape=changed(p.shape, q_len=length, kv_len=length))


def _imports(spec: Torchtitan, scene: Scene) -> list[str]:
    names = [MODULES[spec.module]]
    if spec.module == "flex":
        names.append("create_attention_mask")
        names += [made.partition("(")[0] for made in _factories(spec, scene) if "get_" in made]
    lines = [f"from torchtitan.models.common.attention import {', '.join(sorted(names))}"]
    if spec.checkpoint != "none":
        policy = CHECKPOINTS[spec.checkpoint]
        lines.append(f"from torchtitan.distributed.activation_checkpoint import {policy}")
    if spec.context_parallel != "none":
        used = "apply_cp_to_forward" + (", cp_shard" if spec.module == "flex" else "")
        lines.append(f"from torchtitan.distributed.context_parallel import {used}")
    return lines


def _parts(ranks: int, kernel: Torchtitan) -> int:
    """What the length has to be a multiple of."""
    plain = 1 if kernel.context_parallel == "plain" else 2
    return ranks * (BLOCK if kernel.module == "flex" else plain)


def _mesh_problems(p: Program, kernel: Torchtitan) -> Iterator[Problem]:
    """What context parallelism needs of the ranks, and of the lengths that they share."""
    mesh = p.mesh
    if mesh is None or kernel.context_parallel == "none":
        if (mesh is None) != (kernel.context_parallel == "none"):
            yield Problem("mesh", "expected two processes or more with context parallelism alone")
        return
    if mesh.ranks != "processes" or mesh.plain_mask:
        yield Problem("mesh.ranks", "expected processes, and no plain mask")
    if {mesh.q, mesh.k, mesh.v} != {"replicate"}:
        yield Problem("mesh.q", "expected replicate, and so k and v: each rank takes its part")
    flex = kernel.module == "flex"
    parts = _parts(mesh.world_size, kernel)
    for key, q_len, _ in lengths(p):
        if q_len % parts:
            yield Problem(f"{key}.q_len", f"expected a multiple of {parts} for the ranks")
    for key, wrong, why in (
        ("kernel.context_parallel", flex and kernel.context_parallel != "plain", "plain with flex"),
        ("kernel.pattern", _decomposed(p, kernel), "causal, or a v_head_dim of its own"),
        ("packed", p.packed != "none", "none with context parallelism"),
        ("surround", p.surround.rope or p.surround.qk_norm, "neither with context parallelism"),
        ("kernel.block_size", flex and kernel.block_size != BLOCK, "128"),
    ):
        if wrong:
            yield Problem(key, f"expected {why}")


def _decomposed(p: Program, kernel: Torchtitan) -> bool:
    """Whether SDPA is the CPU's fused kernel, for which DTensor has no rule: to decompose it takes
    12 CPU seconds in each rank, and minutes where it is compiled. A causal one is refused."""
    alike = p.shape.v_head_dim in (None, p.shape.head_dim)
    return kernel.module == "sdpa" and kernel.pattern == "all" and alike


def _module(spec: Torchtitan, scene: Scene) -> list[str]:
    """Statements for the module; a policy is applied to the blocks of a model, called layers."""
    name, mesh = MODULES[spec.module], scene.program.mesh
    size = f"block_size={spec.block_size}" if spec.block_size != BLOCK else ""
    lines = [f"inner_attention = {name}({name}.Config({size}))"]
    if mesh is not None:
        # It makes the process group, of gloo, as there is none.
        group = f'MESH = torch.distributed.init_device_mesh("cpu", ({mesh.world_size},))'
        lines = [group, *lines, "apply_cp_to_forward([inner_attention], MESH)"]
    if spec.checkpoint == "none":
        return lines
    policy = CHECKPOINTS[spec.checkpoint]
    return [
        *lines,
        "model = torch.nn.Module()",
        'model.layers = torch.nn.ModuleDict({"0": inner_attention})',
        f"{policy}({policy}.Config()).apply(model)",
        'inner_attention = model.layers["0"]',
    ]


def _is_causal(program: Program) -> bool:
    """Whether that is the whole mask."""
    spec = program.kernel
    alone = isinstance(spec, Torchtitan) and (spec.pattern, spec.documents) == ("causal", "none")
    return alone and program.mask is None


def _factories(spec: Torchtitan, scene: Scene) -> list[str]:
    """What makes each of the mask_mods that are joined."""
    made = [PATTERNS[spec.pattern].format(spec.window)] if spec.pattern != "all" else []
    if spec.documents != "none":
        made.append(f"{DOCUMENTS[spec.documents]}(positions)")
    return [*made, *(["mask_mod"] if scene.program.mask is not None else [])]


def _block_mask(spec: Torchtitan, scene: Scene) -> list[str]:
    mods = _factories(spec, scene)
    joined = f"and_masks({', '.join(mods)})" if len(mods) > 1 else (*mods, "noop_mask")[0]
    batch, length = scene.batch, scene.q_len
    further = f', device="{scene.inputs_device}"'
    if spec.block_size != BLOCK:
        further += f", BLOCK_SIZE={spec.block_size}"
    sizes = f"{batch}, None, {length}, {length}"
    return [f"block_mask = create_attention_mask({joined}, {sizes}{further})"]


def _documents(spec: Torchtitan, scene: Scene) -> list[str]:
    """Statements for the document of each token, and its position there, `[B, L]`."""
    length, last = scene.q_len, spec.sequences - 1
    owner = f"torch.bucketize(torch.arange({length}), starts[1:], right=True)"
    return [
        f"starts = torch.tensor({cuts(length, spec.sequences)})",
        f"document = {owner}.repeat({scene.batch}, 1)",
        f"document[1::2] = {last} - document[1::2].flip(1)",
        f"positions = torch.arange({length}) - torch.searchsorted(document, document)",
    ]


def _seen(spec: Torchtitan, scene: Scene) -> list[str]:
    """Statements that set `seen`, `[…, L, L]`, to the mask that is meant."""
    length = scene.q_len
    pattern = {
        "causal": "kv_idx <= q_idx",
        "all": "q_idx + kv_idx >= 0",
        "window": f"(kv_idx <= q_idx) & (kv_idx > q_idx - {spec.window})",
        "fixed_block": f"kv_idx // {spec.window} == q_idx // {spec.window}",
    }[spec.pattern]
    lines = [f"q_idx = torch.arange({length})[:, None]", f"kv_idx = torch.arange({length})"]
    lines.append(f"seen = {pattern}")
    if spec.documents != "none":
        same = "document[:, None, :, None] == document[:, None, None, :]"
        lines.append(f"seen = seen & ({same})")
    if scene.program.mask is not None:
        sizes = commas((scene.batch, scene.q_heads, length, length))
        lines.append(f'seen = seen & create_mask(mask_mod, {sizes}, device="cpu")')
    return lines


PLUGIN = TorchtitanPlugin()
