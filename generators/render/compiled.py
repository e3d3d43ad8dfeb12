"""`compiled`: the attention function, compiled and reached as the program says."""

from __future__ import annotations

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.program import Compile
from attnfuzz.generators.render.scene import Scene, indented

Block = list[str]


def compiled(scene: Scene, names: list[str]) -> list[Block]:
    """The blocks that define `compiled(*names)`; none where the function stays eager."""
    settings = scene.program.compile
    if settings is None:
        return []
    match settings.via:
        case "compile":
            return [[f"compiled = {_compile('attention', settings, scene)}"]]
        case "module":
            return [
                _module(names), [f"compiled = {_compile('Attention()', settings, scene)}"],
            ]  # fmt: skip
        case "layers":
            made = _compile("Attention()", settings, scene)
            return [_module(names), [f"layers = [{made} for _ in range(3)]"], _loop(names)]
        case "in_eager":
            inner = f"compiled_attention = {_compile('attention', settings, scene)}"
            taken = plugin_of(scene.program).takes(scene.program.kernel)
            return [[inner], _on_views(names, names[: len(taken)])]
        case "in_compiled":
            inner = f"compiled_attention = {_compile('attention', settings, scene)}"
            outer = f"compiled = {_compile('call_attention', settings, scene)}"
            return [[inner], _calling(names), [outer]]
        case "local":
            inner = f"compiled_attend = {_compile('attend', settings, scene)}"
            arguments = ", ".join(names)
            outer = f"    return attention({arguments}, compiled_attend)"
            return [[inner], [f"def compiled({arguments}):", outer]]
        case "export" | "aoti":
            return [_module(names), ["loaded = []"], _ahead(settings, scene, names)]


def _module(names: list[str]) -> Block:
    arguments = ", ".join(names)
    forward = [f"def forward(self, {arguments}):", f"    return attention({arguments})"]
    return ["class Attention(torch.nn.Module):", *indented(forward)]


def _loop(names: list[str]) -> Block:
    """All layers take the same arguments, as attention does not give what it takes."""
    arguments = ", ".join(names)
    body = ["for layer in layers:", f"    result = layer({arguments})", "return result"]
    return [f"def compiled({arguments}):", *indented(body)]


def _on_views(names: list[str], tensors: list[str]) -> Block:
    main = ", ".join(tensors)
    views = f"(t.view_as(t) for t in ({main}))" if len(tensors) > 1 else f"{main}.view_as({main})"
    body = [f"{main} = {views}", f"return compiled_attention({', '.join(names)})"]
    return [f"def compiled({', '.join(names)}):", *indented(body)]


def _calling(names: list[str]) -> Block:
    arguments = ", ".join(names)
    return [f"def call_attention({arguments}):", f"    return compiled_attention({arguments})"]


def _ahead(settings: Compile, scene: Scene, names: list[str]) -> Block:
    """Exports, and compiles, when there are arguments: at the first call."""
    given, lines = ", ".join(names), []
    together = f"({given},)" if len(names) == 1 else f"({given})"
    arguments = f"Attention(), {together}"
    if scene.several:
        lines.append(f"shapes = [[torch.export.Dim.AUTO] * t.dim() for t in {together}]")
        arguments += ", dynamic_shapes=shapes"
    lines.append(f"exported = torch.export.export({arguments})")
    if settings.via == "export":
        lines.append("loaded.append(exported.module())")
    else:
        package = ["exported"]
        if settings.options:
            package.append(f"inductor_configs={scene.quoting.value(settings.options)}")
        lines.append(f"path = torch._inductor.aoti_compile_and_package({', '.join(package)})")
        lines.append("loaded.append(torch._inductor.aoti_load_package(path))")
    body = ["if not loaded:", *indented(lines), f"return loaded[0]({given})"]
    return [f"def compiled({given}):", *indented(body)]


def _compile(function: str, settings: Compile, scene: Scene) -> str:
    """`torch.compile(function, …)` with what is not its defaults."""
    options = [function]
    if settings.backend != "inductor":
        options.append(f'backend="{settings.backend}"')
    if settings.mode is not None:
        options.append(f'mode="{settings.mode}"')
    if settings.dynamic is not None:
        options.append(f"dynamic={settings.dynamic}")
    if settings.fullgraph:
        options.append("fullgraph=True")
    if settings.options:
        options.append(f"options={scene.quoting.value(settings.options)}")
    return f"torch.compile({', '.join(options)})"


def marks(scene: Scene) -> Block:
    """Statements that mark the sizes of q, k and v, or of x and the context. Sizes that are alike
    have one `shape_id` where they are unbacked."""
    p = scene.program
    if p.compile is None:
        return []
    said = p.compile.marks
    batch, q_len, kv_len = ("B", said.batch), ("Lq", said.q_len), ("Lkv", said.kv_len)
    if p.surround.projections:
        sizes = {"x": {0: batch, 1: q_len}}
        if not scene.self_attention:
            sizes["context"] = {0: batch, 1: kv_len}
    else:
        sizes = {"q": {0: batch, 2: q_len}, "k": {0: batch, 2: kv_len}, "v": {0: batch, 2: kv_len}}
        takes = plugin_of(p).takes(p.kernel)
        sizes = {name: dims for name, dims in sizes.items() if name in takes}
    return [
        _mark(mark, name, dim, size)
        for name, dims in sizes.items()
        for dim, (size, mark) in dims.items()
        if mark != "auto"
    ]


def _mark(mark: str, name: str, dim: int, size: str) -> str:
    if mark == "unbacked":
        return f'torch._dynamo.decorators.mark_unbacked({name}, {dim}, shape_id="{size}")'
    return f"torch._dynamo.mark_{mark}({name}, {dim})"
