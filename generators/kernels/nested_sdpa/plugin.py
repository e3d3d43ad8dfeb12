"""SDPA of nested tensors: how they are made, and the same on tensors that are not nested."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.nested_sdpa.refusals import REFUSALS
from attnfuzz.generators.kernels.nested_sdpa.spec import NestedSdpa
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program, Surround
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.sizes import Size, commas, plus

OF_ONE_ENTRY = ("jagged", "jagged_list", "strided")
"""Whose sequences are those of the only batch entry."""

NESTED = {
    "jagged": (
        "values = t[0].transpose(0, 1).contiguous()",
        "return torch.nested.nested_tensor_from_jagged(values, offsets).transpose(1, 2)",
    ),
    "jagged_list": (
        "parts = list(t[0].transpose(0, 1).split(offsets.diff().tolist()))",
        "return torch.nested.as_nested_tensor(parts, layout=torch.jagged).transpose(1, 2)",
    ),
    "strided": (
        "parts = list(t[0].split(offsets.diff().tolist(), dim=1))",
        "return torch.nested.as_nested_tensor(parts)",
    ),
    "narrow": (
        "t = t.transpose(1, 2).contiguous()",
        "rows = torch.nested.narrow(t, 1, 0, lengths, layout=torch.jagged)",
        "return rows.contiguous().transpose(1, 2)",
    ),
    "ragged_batch": ("return torch.nested.nested_tensor_from_jagged(t, offsets)",),
}
"""The body of the function that makes a nested tensor of q, k or v, `t` `[B, H, L, D]`."""


class NestedSdpaPlugin(KernelPlugin[NestedSdpa]):
    """Offsets `[N + 1]` or lengths `[B]` of the sequences are arguments; nested tensors are made in
    the attention function, so that q, k and v have gradients as they are given."""

    spec_class = NestedSdpa
    labels = ("module: sdpa", "module: nestedtensor")
    interchangeable = False
    refusals = REFUSALS

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        spec = self.spec(scene.program)
        name = "lengths" if spec.made == "narrow" else "offsets"
        inputs = Inputs(globals=[f"def nested(t, {name}):", *indented([*NESTED[spec.made]])])
        if spec.made == "ragged_batch":
            inputs.statements.append(f"offsets = {_offsets(scene.batch, spec)}")
            inputs.arguments.append("offsets")
            return inputs
        for side, length in (("q", scene.q_len), ("kv", scene.kv_len)):
            value = _offsets(length, spec)
            if spec.made == "narrow":
                value = _lengths(length, spec, scene.batch)
            inputs.statements.append(f"{name}_{side} = {value}")
            inputs.arguments.append(f"{name}_{side}")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        of_q, of_kv = inputs.arguments[0], inputs.arguments[-1]
        args = [f"nested(q, {of_q})", f"nested(k, {of_kv})", f"nested(v, {of_kv})"]
        args += ["is_causal=True"] * spec.is_causal
        args += [f"scale={spec.scale!r}"] if spec.scale is not None else []
        lines = [f"out = F.scaled_dot_product_attention({', '.join(args)})"]
        match spec.made:
            case "strided":
                return Body(["torch.cat(out.unbind(), dim=1)[None]"], lines)
            case "narrow":
                size = commas((scene.batch, scene.q_len, scene.q_heads, scene.v_head_dim))
                padded = f"torch.nested.to_padded_tensor(out.transpose(1, 2), 0.0, ({size}))"
                return Body([f"{padded}.transpose(1, 2)"], lines)
            case "ragged_batch":
                return Body(["out.values()"], lines)
        return Body(["out.transpose(1, 2).values().transpose(0, 1)[None]"], lines)

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec = self.spec(scene.program)
        scale = scene.scale_text(spec.scale)
        positions = [f"torch.arange({n})" for n in (scene.q_len, scene.kv_len)]
        if spec.made == "ragged_batch":
            if not spec.is_causal:
                return Meaning(scale)
            lines = [f"mask = {positions[0]}[:, None] >= {positions[1]}"]
        elif spec.made == "narrow":
            lines = [
                f"rows = {positions[0]} < lengths_q[:, None]",
                f"columns = {positions[1]} < lengths_kv[:, None]",
                "mask = rows[:, None, :, None] & columns[:, None, None, :]",
            ]
            lines += ["mask = mask.tril()"] if spec.is_causal else []
        else:
            owner = "torch.bucketize({at}, offsets_{side}[1:], right=True)"
            lines = [
                f"row = {owner.format(at=positions[0], side='q')}",
                f"col = {owner.format(at=positions[1], side='kv')}",
                "mask = row[:, None] == col",
            ]
            if spec.is_causal:
                lines += [
                    f"q_idx = {positions[0]} - offsets_q[row]",
                    f"kv_idx = {positions[1]} - offsets_kv[col]",
                    "mask = mask & (q_idx[:, None] >= kv_idx)",
                ]
        lines.append('scores = scores.masked_fill(~mask, float("-inf"))')
        return Meaning(scale, lines, zero_dead_rows=True)

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        p, kernel = program, self.spec(program)
        for key, wrong in (
            ("mask", p.mask is not None),
            ("packed", p.packed != "none"),
            ("transform", p.transform != "none"),
            ("surround", p.surround != Surround()),
            ("training.double", p.training is not None and p.training.double),
        ):
            if wrong:
                yield Problem(key, "expected none with nested_sdpa")
        if p.shape.q_heads != p.shape.kv_heads:
            yield Problem("shape.q_heads", "expected kv_heads: nested tensors have no groups")
        for key, batch in _batches(p):
            if kernel.made in OF_ONE_ENTRY and batch != 1:
                yield Problem(f"{key}.batch", "expected 1 where its length is cut into sequences")
        for key, q_len, kv_len in lengths(p):
            if kernel.made == "narrow" and not (q_len and kv_len):
                yield Problem(f"{key}.q_len", "expected lengths above 0 to pad with narrow")
            full = kernel.made in OF_ONE_ENTRY and kernel.lengths != "empty"
            if full and min(q_len, kv_len) < least_length(kernel):
                sentence = f"expected {least_length(kernel)} or more for {kernel.sequences}"
                yield Problem(f"{key}.q_len", f"{sentence} sequences, or lengths: empty")
        for key, batch in _batches(p):
            cut = kernel.made == "ragged_batch" and kernel.lengths == "random"
            if cut and batch < kernel.sequences:
                yield Problem(f"{key}.batch", f"expected {kernel.sequences} or more to cut")
        if kernel.made in ("jagged_list", "strided") and p.compile is not None:
            yield Problem("compile", f"expected none: {kernel.made} needs lengths in Python")

    def breaks(self, program: Program) -> tuple[str, ...]:
        """The math back-end, a CPU's only one, splits by lengths that it takes out of a tensor
        ("a .item() call", as torch/nested/_internal/sdpa.py has it) and makes a strided tensor."""
        if self.spec(program).made == "ragged_batch":
            return ()
        return ("aten._nested_tensor_from_tensor_list", "aten._local_scalar_dense")

    def draws_lengths(self, kernel: NestedSdpa) -> bool:
        return kernel.lengths != "growing"

    def depends_on_batch(self, kernel: NestedSdpa) -> bool:
        return True

    # How its programs are simplified.

    def features(self, program: Program) -> Iterator[str]:
        yield from super().features(program)
        if self.spec(program).sequences > 2:
            yield "kernel.nested_sdpa.sequences"

    def plain(self, kernel: NestedSdpa) -> NestedSdpa:
        return NestedSdpa(made=kernel.made)

    def fitted(self, program: Program) -> Program:
        return changed(program, mask=None, score_mod=None)


def least_length(kernel: NestedSdpa) -> int:
    """The length from which on none of the sequences that it is cut into is empty."""
    count = kernel.sequences
    return count * (count + 1) // 2 if kernel.lengths == "growing" else count


def _batches(p: Program) -> list[tuple[str, int]]:
    further = ((f"calls[{i}]", call.batch) for i, call in enumerate(p.calls))
    return [("shape", p.shape.batch), *further]


def _offsets(length: Size, spec: NestedSdpa) -> str:
    """Where the sequences begin and end, an int64 tensor `[N + 1]`."""
    count = spec.sequences
    if spec.lengths == "empty" and count > 1:
        cuts = f"torch.randint({plus(length, 1)}, ({count - 1},)).sort().values"
        return f"torch.tensor([0, *{cuts}, {length}])"
    if spec.lengths == "random" and count > 1:
        cuts = f"torch.randperm({plus(length, -1)})[:{count - 1}].sort().values + 1"
        return f"torch.tensor([0, *({cuts}), {length}])"
    parts, steps = count * (count + 1), [i * (i + 1) for i in range(count + 1)]
    if isinstance(length, int):
        return f"torch.tensor({[length * step // parts for step in steps]})"
    return f"torch.tensor([{', '.join(f'{length} * {step} // {parts}' for step in steps)}])"


def _lengths(length: Size, spec: NestedSdpa, batch: Size) -> str:
    """How many rows of each batch entry there are, an int64 tensor `[B]`."""
    if spec.lengths != "growing":
        return f"torch.randint(1, {plus(length, 1)}, ({batch},))"
    return f"({length} * (torch.arange({batch}) % 3 + 1) // 3).clamp(min=1)"


PLUGIN = NestedSdpaPlugin()
