"""`attention`: the computation under test, with what is wrapped around it."""

from __future__ import annotations

from typing import Any

from attnfuzz.generators.kernels.base import Body, Inputs, KernelPlugin
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.methods.wrapping import wrapped
from attnfuzz.generators.render.dropout import with_unit_matrix
from attnfuzz.generators.render.integration import integrated
from attnfuzz.generators.render.mesh import distributed, gathered, simulated
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.surround import after, before

Function = list[str]

REGION = "@torch.compiler.nested_compile_region"


def attention(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
) -> list[Function]:
    """The functions that make up `attention(*names)`: what stands around the kernel, then itself,
    or `attend` and a wrapper."""
    p = scene.program
    method = method_of(p)
    checkpoint = p.surround.checkpoint
    if method is not None and method.mesh(p).module != "none":
        return wrapped(scene, plugin, inputs, method)
    if method is not None:
        functions = method.functions(scene, plugin, inputs, names)
        if checkpoint == "none":
            return functions
        *first, last = functions
        attend = [last[0].replace("attention(", "shared_attention(", 1), *last[1:]]
        lines = [f"return checkpoint(shared_attention, {', '.join(names)}, use_reentrant=False)"]
        return [*first, attend, _function("attention", names, lines)]
    around, call = integrated(scene, plugin, inputs)
    body = call or plugin.call(scene, inputs)
    if plugin.dropout_p(p.kernel):
        body.statements.insert(0, with_unit_matrix(scene))
    lines = _whole_body(scene, body, names, plugin)
    head = [REGION] if p.surround.region else []
    if p.transform == "none" and checkpoint == "none" and p.surround.layers == 1:
        return [*around, [*head, *_function("attention", names, lines)]]
    inner = [*head, *_function("attend", names, lines)]
    if p.transform == "none":
        whole = layered(scene, names, _attending(names, checkpoint))
        return [*around, inner, _function("attention", names, whole)]
    return [inner, _function("attention", names, _transformed(scene, names, plugin.outputs(scene)))]


def _function(name: str, names: list[str], lines: list[str]) -> Function:
    return [f"def {name}({', '.join(names)}):", *indented(lines)]


def _whole_body(scene: Scene, body: Body, names: list[str], plugin: KernelPlugin[Any]) -> list[str]:
    """Surroundings, the kernel and the way back, within their context managers; `names` are the
    arguments."""
    p = scene.program
    results = [after(scene, body.result[0], plain=False), *body.result[1:]]
    spread = distributed(scene, names)
    if spread:
        body.statements.append(f"out = {results[0]}")
        results[0] = gathered(scene, "out")
    returned = f"return {', '.join(results)}"
    lines = [*spread, *before(scene, plain=False), *body.statements, returned]
    contexts = [*simulated(scene), *body.contexts]
    if p.autocast:
        contexts.insert(0, f'torch.autocast("{scene.device}", dtype=torch.{p.autocast})')
    lines = plugin.with_extents(scene, lines)
    return [f"with {', '.join(contexts)}:", *indented(lines)] if contexts else lines


def layered(scene: Scene, names: list[str], call: str) -> list[str]:
    """The body of a function whose layers are that `call`: each but the last adds to the first of
    its arguments."""
    adds = [f"{names[0]} = {names[0]} + {call}"] * (scene.program.surround.layers - 1)
    return [*adds, f"return {call}"]


def _attending(names: list[str], kind: str) -> str:
    """The call of `attend`, in a checkpoint of that kind."""
    if kind == "none":
        return f"attend({', '.join(names)})"
    args = ["attend", *names, f"use_reentrant={kind == 'reentrant'}"]
    if kind == "selective":
        args.append("context_fn=save_products")
    return f"checkpoint({', '.join(args)})"


def selective_policy(scene: Scene, plugin: KernelPlugin[Any]) -> list[str]:
    """The selective checkpoint's policy, which saves matrix products and attention."""
    saved = ["torch.ops.aten.mm.default", "torch.ops.aten.bmm.default"]
    saved += [f"torch.ops.{name}.default" for name in plugin.fused_operators(scene.device)]
    return [
        "SAVED = [", *indented([f"{op}," for op in saved]), "]",
        "save_products = functools.partial(create_selective_checkpoint_contexts, SAVED)",
    ]  # fmt: skip


def main_names(names: list[str]) -> list[str]:
    """q, k and v: what transforms differentiate with respect to."""
    return names[:3]


def _transformed(scene: Scene, names: list[str], outputs: tuple[str, ...]) -> list[str]:
    """A functorch transform of `attend` in q, k and v, the other arguments held fixed."""
    main = ", ".join(main_names(names))
    attend = f"attend({', '.join(names)})"
    match scene.program.transform:
        case "vmap":
            return [
                "def attend_once(q):", f"    return {attend}", "",
                "return torch.vmap(attend_once)(torch.stack((q, -q)))",
            ]  # fmt: skip
        case "grad":
            result = attend if len(outputs) == 1 else f"{attend}[0]"
            return [
                f"def loss({main}):", f"    return {result}.square().sum()", "",
                f"return torch.func.grad(loss, argnums=(0, 1, 2))({main})",
            ]  # fmt: skip
    result = attend if len(outputs) == 1 else f"{attend}[0]"
    return [
        f"def output({main}):", f"    return {result}", "",
        *tangent_statement(main), f"return torch.func.jvp(output, ({main}), tangents)",
    ]  # fmt: skip


def tangent_statement(main: str) -> list[str]:
    """Tangents that are exact in every dtype and differ from their primals."""
    return [f"tangents = tuple(t.flip(-1) for t in ({main}))"]
