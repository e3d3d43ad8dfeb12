"""A graph of steps: how it is written, what it means, what it supports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin, Loop
from attnfuzz.generators.kernels.graph import decoding, extents, fit, looping, shrinking, types
from attnfuzz.generators.kernels.graph.arranging import arranged
from attnfuzz.generators.kernels.graph.plainer import as_heads, without_pages
from attnfuzz.generators.kernels.graph.refusals import REFUSALS
from attnfuzz.generators.kernels.graph.spec import Graph, Parameter
from attnfuzz.generators.kernels.graph.spelling import spelled
from attnfuzz.generators.kernels.graph.steps.rotary import FREQUENCIES, frequencies
from attnfuzz.generators.kernels.graph.steps.state import StoreInPages, held
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.steps.views import Permute
from attnfuzz.generators.kernels.graph.values import Scope, Value
from attnfuzz.generators.kernels.handwritten.spec import Handwritten
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program, Surround
from attnfuzz.generators.model.tree import class_of, kind_of
from attnfuzz.generators.render.dense import dense_mask, hidden_scores
from attnfuzz.generators.render.scene import Scene, dtype_argument, naming_extents
from attnfuzz.generators.render.sizes import Size, commas

Lines = Callable[[Step, Scope], list[str]]

HANDED = {
    "bhld": "",
    "blhd": ".transpose(1, 2)",
    "merged": ".transpose(1, 2).flatten(2)",
    "flat": ".flatten(0, 1)",
}


class GraphPlugin(KernelPlugin[Graph]):
    """The reference composes as the graph does: each step is followed by its plain meaning."""

    spec_class = Graph
    interchangeable = False
    recognised_as_sdpa = True
    refusals = REFUSALS

    # How it is written.

    def takes(self, kernel: Graph) -> tuple[str, ...]:
        _, needed = types.live(kernel)
        used = needed | {other.like for other in kernel.others}
        return tuple(name for name in ("q", "k", "v") if name in used)

    def handed_over(self, kernel: Graph) -> str:
        return HANDED[kernel.given]

    def inputs(self, scene: Scene) -> Inputs:
        graph, inputs = self.spec(scene.program), Inputs()
        training = scene.program.training is not None
        for other in graph.others:
            grad = ".requires_grad_()" if training else ""
            inputs.statements.append(f"{other.name} = torch.randn_like({other.like}){grad}")
            inputs.arguments.append(other.name)
        for parameter in graph.parameters:
            text = _parameter(scene, graph, parameter)
            if training:
                text = f"({text})" if " + " in text or " / " in text else text
                text += ".requires_grad_()"
            inputs.statements.append(f"{parameter.name} = {text}")
            inputs.arguments.append(parameter.name)
        if training:
            inputs.learnable = list(inputs.arguments)
        inputs.floating = list(inputs.arguments)
        if graph.rotates:
            made = frequencies(scene.head_dim, scene.program.q.dtype)
            inputs.statements.append(f"{FREQUENCIES} = {made}")
            inputs.arguments.append(FREQUENCIES)
        if scene.program.mask is not None:
            self._mask(scene, graph, inputs)
        if graph.decode is not None:
            looping.caches(scene.program, graph, graph.decode, inputs)
        return inputs

    def loop(self, program: Program, device: str = "cpu") -> Loop | None:
        graph = self.spec(program)
        if graph.decode is None:
            return None
        return looping.loop(program, graph, graph.decode, self.takes(graph), device)

    def _mask(self, scene: Scene, graph: Graph, inputs: Inputs) -> None:
        program, form = scene.program, graph.mask
        assert program.mask is not None
        shape = types.mask_value(program, form, Scope(_extents(scene, graph))).shape
        whole = (shape[0], 1, 1, shape[1]) if form.padding else shape
        inputs.statements += dense_mask(program.mask, scene, "mask", whole)
        inputs.statements += ["mask = mask[:, 0, 0]"] if form.padding else []
        inputs.arguments.append("mask")
        if form.form == "bool":
            return
        inputs.floating.append("mask")
        dtype = "float32" if form.dtype == "float32" else program.q.dtype
        if form.form == "zero_one":
            inputs.statements.append(f"mask = mask.to(torch.{dtype})")
            return
        made = "randn" if form.form == "biased" else "zeros"
        start = f"torch.{made}({commas(shape)}{dtype_argument(dtype)})"
        fill = hidden_scores(form.fill, dtype)
        inputs.statements.append(f"mask = {start}.masked_fill(~mask, {fill})")

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        graph = self.spec(scene.program)
        sizes = _extents(scene, graph)
        if graph.decode is not None:
            sizes = decoding.written_sizes(scene.program, graph.decode)
        return self._body(scene, sizes, lambda step, scope: step.text(scope), scene.device)

    def plain_body(self, scene: Scene, inputs: Inputs) -> Body:
        graph = self.spec(scene.program)
        sizes = _extents(scene, graph)
        body = self._body(scene, sizes, lambda step, scope: step.plain(scope), "cpu")
        if graph.decode is not None and graph.decode.allocated:
            body.result = [body.result[0], *(held(cache) for cache in graph.caches)]
        return body

    def _body(self, scene: Scene, sizes: Mapping[str, Size], lines: Lines, device: str) -> Body:
        graph = self.spec(scene.program)
        before = replace(types.arguments(scene.program, graph, sizes), device=device)
        statements: list[str] = []
        for step, scope in zip(graph.steps, types.scopes(graph, before), strict=False):
            statements += lines(step, scope)
        return Body(list(graph.returns), statements)

    def with_extents(self, scene: Scene, lines: list[str]) -> list[str]:
        graph = self.spec(scene.program)
        taken, length = self.takes(graph), looping.LENGTHS[graph.given]
        if graph.decode is not None:
            return looping.with_names(scene, graph, graph.decode, taken[0], lines)
        heads = scene.q_heads if taken[0] == "q" else scene.kv_heads
        batch = f"{taken[0]}.shape[0]"
        batch += f" // {heads}" if graph.given == "flat" and heads > 1 else ""
        key = next((name for name in ("k", "v") if name in taken), "q")
        query = "q" if "q" in taken else key
        names = {"B": batch, "Lq": f"{query}.shape[{length}]", "Lkv": f"{key}.shape[{length}]"}
        return naming_extents(lines, names)

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        return self.spec(scene.program).returns

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        p, graph = program, self.spec(program)
        taken = self.takes(graph)
        every = len(taken) == 3
        if not p.shape.q_heads or not p.shape.kv_heads:
            yield Problem("shape.q_heads", "expected some with a graph")
            return
        surround = Surround(checkpoint=p.surround.checkpoint, region=p.surround.region)
        for key, wrong in (
            ("transform", p.transform != "none"),
            ("autocast", p.autocast is not None),
            ("surround", p.surround != surround),
            ("training.double", p.training is not None and p.training.double),
            ("packed", p.packed != "none" and (graph.given != "bhld" or not every)),
            ("mesh", p.mesh is not None),
        ):
            if wrong:
                yield Problem(key, "expected none with a graph")
                return
        for name in ("k", "v"):
            if getattr(p, name).dtype != p.q.dtype:
                yield Problem(f"{name}.dtype", "expected q's")
                return
        if not taken:
            yield Problem("kernel.steps", "expected one that reads q, k or v")
            return
        for key, q_len, kv_len in lengths(p):
            if q_len != kv_len and ("q" not in taken or not {"k", "v"} & {*taken}):
                yield Problem(f"{key}.kv_len", f"expected q_len ({q_len}), as not all is read")
                return
        yield from types.problems(p, graph)

    def gqa_enabled(self, kernel: Graph) -> bool:
        return True

    def keeps_layout(self, kernel: Graph) -> bool:
        return False

    def learns(self, kernel: Graph) -> bool:
        return bool(kernel.parameters or kernel.others)

    def depends_on_batch(self, kernel: Graph) -> bool:
        """Its further arguments have batches too, and the first dimension need not be one."""
        return True

    def has_unread_nan(self, program: Program) -> bool:
        decode = self.spec(program).decode
        unwritten = decode is not None and decode.unwritten == "nan"
        return unwritten or super().has_unread_nan(program)

    # How its programs are simplified.

    def features(self, program: Program) -> Iterator[str]:
        graph = self.spec(program)
        yield "kernel.graph"
        yield from choices(graph, "kernel.graph")
        yield from choices(graph.mask, "kernel.graph.mask")
        if graph.decode is not None:
            yield "kernel.graph.decode"
            yield from choices(graph.decode, "kernel.graph.decode")
            if graph.decode.window is not None:
                yield "kernel.graph.decode.window"
            if graph.decode.tokens > 1:
                yield "kernel.graph.decode.tokens"
        if graph.others:
            yield "kernel.graph.others"
        if graph.parameters:
            yield "kernel.graph.parameters"
        if len(graph.returns) > 1:
            yield "kernel.graph.returns"
        for step in graph.steps:
            kind = f"step.{kind_of(class_of(step))}"
            yield kind
            yield from choices(step, kind)
            if isinstance(step, Permute) and step.far:
                yield f"{kind}.far"
            if isinstance(step, StoreInPages):  # pages are written as slots are
                yield "step.store"
                yield from choices(step, "step.store")

    def underneath(self, program: Program) -> Iterator[Program]:
        graph = self.spec(program)
        plain = spelled(graph)
        if plain != graph:
            yield replace(program, kernel=plain)
        yield from arranged(program, plain)
        alone = replace(program.shape, batch=1)
        for simpler in without_pages(graph, graph.decode) if graph.decode is not None else ():
            yield replace(program, kernel=as_heads(simpler), shape=alone)

    def smaller(self, program: Program) -> Iterator[Graph | Sdpa | Handwritten]:
        return shrinking.smaller(program, self.spec(program))

    def fitted(self, program: Program) -> Program:
        return fit.fitted(program, self.spec(program))


def _extents(scene: Scene, graph: Graph) -> Mapping[str, Size]:
    """The extents in a call, or of the whole sequence where it comes in parts."""
    if graph.decode is not None:
        return decoding.sizes_of_whole(scene.program, graph.decode)
    return extents.sizes(scene.program, scene.batch, scene.q_len, scene.kv_len)


def _parameter(scene: Scene, graph: Graph, parameter: Parameter) -> str:
    """The expression for a further argument."""
    scope = types.arguments(scene.program, graph, _extents(scene, graph))
    value: Value = scope.values[parameter.name]
    kind = dtype_argument(value.dtype)
    where = commas(value.shape) if value.shape else "()"
    if parameter.values == "positive":
        return f"torch.rand({where}{kind}) + 0.5"
    drawn = f"torch.randn({where}{kind})"
    return f"{drawn} / {value.shape[-1]} ** 0.5" if parameter.values == "weight" else drawn


PLUGIN = GraphPlugin()
