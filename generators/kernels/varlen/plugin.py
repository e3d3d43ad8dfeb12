"""`torch.nn.attention.varlen.varlen_attn`, written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.kernels.grouping import is_grouped
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD
from attnfuzz.generators.kernels.varlen.spec import Varlen
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.scene import Scene
from attnfuzz.generators.render.sizes import Size

DTYPES = ("float16", "bfloat16")


def enables_gqa(program: Program) -> bool:
    """Whether it says that Hq may differ from Hkv."""
    return isinstance(program.kernel, Varlen) and program.kernel.enable_gqa


def writes_out(program: Program) -> bool:
    """Whether it writes into a tensor that it is given."""
    return isinstance(program.kernel, Varlen) and program.kernel.out


REFUSALS = (
    Refusal(
        pattern=r"ImportError: cannot import name 'varlen_attn_out'",
        why="this release has no varlen_attn_out",
        needs=writes_out,
    ),
    Refusal(
        pattern=r"TypeError: (?:varlen_attn\(\) got an unexpected keyword argument |"
        r"Unexpected keyword arguments: \[)'enable_gqa'",
        why="this release's varlen_attn has no enable_gqa",
        needs=enables_gqa,
    ),
    Refusal(
        pattern=r"Input tensor must have contiguous last dimension",
        why="varlen_attn takes q, k and v whose last dimension is contiguous",
        needs=conditions.strided_head_dim,
    ),
    Refusal(
        pattern=r"query and (?:key|value) must have the same dtype",
        why="varlen_attn takes q, k and v of one dtype",
        needs=conditions.dtypes_may_differ,
    ),
)


class VarlenPlugin(KernelPlugin[Varlen]):
    """q, k and v are handed over as views `[L, H, D]` of the only batch entry."""

    spec_class = Varlen
    interchangeable = False
    refusals = (*AUTOGRAD, *REFUSALS)

    def inputs(self, scene: Scene) -> Inputs:
        count, inputs = self.spec(scene.program).sequences, Inputs()
        for name, length in (("q", scene.q_len), ("k", scene.kv_len)):
            cuts = f"torch.tensor({_cuts(length, count)}, dtype=torch.int32)"
            inputs.statements.append(f"cu_seq_{name} = {cuts}")
            inputs.arguments.append(f"cu_seq_{name}")
        return inputs

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        spec = self.spec(scene.program)
        longest = [_longest(n, spec.sequences) for n in (scene.q_len, scene.kv_len)]
        args = [f"{name}[0].transpose(0, 1)" for name in ("q", "k", "v")]
        args += ["cu_seq_q", "cu_seq_k", str(longest[0]), str(longest[1])]
        args += [f"scale={spec.scale!r}"] if spec.scale is not None else []
        args += [f"window_size={spec.window}"] if spec.window != (-1, -1) else []
        args += ["enable_gqa=True"] if spec.enable_gqa else []
        function = "varlen_attn"
        if spec.out:
            function, args = "varlen_attn_out", [f"torch.empty_like({args[0]})", *args]
        return Body(["out.transpose(0, 1)[None]"], [f"out = {function}({', '.join(args)})"])

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        spec = self.spec(scene.program)
        owner = "torch.bucketize(torch.arange({n}), {cuts}[1:], right=True)"
        lines = [
            f"row = {owner.format(n=scene.q_len, cuts='cu_seq_q')}",
            f"col = {owner.format(n=scene.kv_len, cuts='cu_seq_k')}",
            "mask = row[:, None] == col",
        ]
        left, right = spec.window
        if spec.window != (-1, -1):
            lines += [
                f"from_end_q = cu_seq_q[row + 1] - torch.arange({scene.q_len})",
                f"from_end_k = cu_seq_k[col + 1] - torch.arange({scene.kv_len})",
                "distance = from_end_k - from_end_q[:, None]",
            ]
        lines += [f"mask = mask & (distance <= {left})"] if left >= 0 else []
        lines += [f"mask = mask & (distance >= {-right})"] if right >= 0 else []
        lines.append('scores = scores.masked_fill(~mask, float("-inf"))')
        return Meaning(scene.scale_text(spec.scale), lines, zero_dead_rows=True)

    def problems(self, program: Program) -> Iterator[Problem]:
        p = program
        for name in ("q", "k", "v"):
            if getattr(p, name).dtype not in DTYPES:
                yield Problem(f"{name}.dtype", f"expected one of {', '.join(DTYPES)} for varlen")
        for key, wrong in (
            ("mask", p.mask is not None),
            ("transform", p.transform != "none"),
            ("autocast", p.autocast is not None),
            ("packed", p.packed != "none"),
            ("training", p.training is not None and self.spec(p).out),
            ("training.double", p.training is not None and p.training.double),
        ):
            if wrong:
                yield Problem(key, "expected none with varlen")
        if p.shape.v_head_dim not in (None, p.shape.head_dim):
            yield Problem("shape.v_head_dim", "expected head_dim for varlen")
        calls = (
            ("shape", p.shape.batch),
            *((f"calls[{i}]", c.batch) for i, c in enumerate(p.calls)),
        )
        for key, batch in calls:
            if batch != 1:
                yield Problem(f"{key}.batch", "expected 1 for varlen: it has sequences")

    def gqa_enabled(self, kernel: Varlen) -> bool:
        return kernel.enable_gqa

    def features(self, program: Program) -> Iterator[str]:
        kernel = self.spec(program)
        yield from super().features(program)
        if kernel.window != (-1, -1):
            yield "kernel.varlen.window"
        if kernel.out:
            yield "kernel.varlen.out"
        if kernel.sequences > 2:
            yield "kernel.varlen.sequences"

    def plain(self, kernel: Varlen) -> Varlen:
        return Varlen()

    def without_groups(self, kernel: Varlen) -> Varlen:
        return replace(kernel, enable_gqa=False)

    def fitted(self, program: Program) -> Program:
        kernel = self.spec(program)
        grouped = kernel.enable_gqa or is_grouped(program)
        out = kernel.out and program.training is None
        kernel = changed(kernel, enable_gqa=grouped, out=out)
        p = changed(program, kernel=kernel, mask=None, score_mod=None)
        half = {
            name: changed(getattr(p, name), dtype="bfloat16")
            for name in ("q", "k", "v")
            if getattr(p, name).dtype not in DTYPES
        }
        return changed(p, **half)


def _cuts(length: Size, sequences: int) -> str:
    """Where the sequences begin and end."""
    parts, steps = sequences * (sequences + 1), [i * (i + 1) for i in range(sequences + 1)]
    if isinstance(length, int):
        return str([length * step // parts for step in steps])
    return f"[{', '.join(f'{length} * {step} // {parts}' for step in steps)}]"


def _longest(length: Size, sequences: int) -> Size:
    """The longest sequence; where lengths differ from call to call, an upper bound."""
    if not isinstance(length, int):
        return length
    parts = sequences * (sequences + 1)
    cuts = [length * i * (i + 1) // parts for i in range(sequences + 1)]
    return max(b - a for a, b in zip(cuts, cuts[1:], strict=False))


PLUGIN = VarlenPlugin()
