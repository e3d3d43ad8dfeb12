"""How a graph that is called for parts of a sequence is run: its caches, its loop, its names."""

from __future__ import annotations

from attnfuzz.generators.kernels.base import Inputs, Loop
from attnfuzz.generators.kernels.graph import decoding, types
from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.rotary import FREQUENCIES
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.devices import beside
from attnfuzz.generators.render.scene import Scene, dtype_argument, naming_extents
from attnfuzz.generators.render.sizes import commas

LENGTHS = {"bhld": 2, "blhd": 1, "merged": 1, "flat": 1}
"""Which dimension of q and k is the length."""

TABLE = "block_table"
POSITIONS = {
    "int": "start", "tensor": "torch.tensor(start{on})", "one_element": "torch.tensor([start]{on})",
    "arange": "torch.arange(start, stop{on})",
}  # fmt: skip


def caches(program: Program, graph: Graph, decode: Decode, inputs: Inputs) -> None:
    """Adds the caches, and the table of their pages, to the arguments; lists are made anew in each
    run."""
    if decode.slots == "listed":
        return
    scope = types.arguments(program, graph, decoding.sizes_of_part(program, decode, 0, 1))
    for name in graph.caches:
        value = scope.values[name]
        where, kind = commas(value.shape), dtype_argument(value.dtype)
        made = {"zeros": f"torch.zeros({where}{kind})", "normal": f"torch.randn({where}{kind})"}
        made["nan"] = f"torch.full({value.shape}, torch.nan{kind})"
        inputs.statements.append(f"{name} = {made[decode.unwritten]}")
        inputs.arguments.append(name)
        inputs.floating.append(name)
    if decode.slots == "pages":
        batch, pages = program.shape.batch, int(scope.sizes["pages"])
        table = f"torch.randperm({batch * pages}).reshape({batch}, {pages})"
        inputs.statements.append(f"{TABLE} = {table}")
        inputs.arguments.append(TABLE)


def loop(
    program: Program, graph: Graph, decode: Decode, taken: tuple[str, ...], device: str
) -> Loop:
    """The calls of one run on `device`; `taken` are those of q, k and v that the graph needs."""
    parts = decode.parts(program.shape.q_len)
    arguments = [parameter.name for parameter in graph.parameters]
    arguments += [FREQUENCIES] if graph.rotates else []
    arguments += [*graph.caches, *([TABLE] if decode.slots == "pages" else [])]
    listed = graph.caches if decode.slots == "listed" else ()
    further = _further(decode)
    if further:
        position = POSITIONS[decode.position]
        if len(parts) == 1:
            position = position.replace("start", "0").replace("stop", str(program.shape.q_len))
        arguments.append(position.format(on=beside(device, taken[0])))
    scope = types.arguments(program, graph, decoding.names_of_sizes(program, decode))
    *_, last = types.scopes(graph, scope)
    return Loop(
        parts=parts,
        cut=taken,
        length=LENGTHS[graph.given],
        arguments=tuple(arguments),
        further=(*listed, *further),
        lists=listed,
        kept=() if listed else graph.caches,
        carried=decode.gives_caches,
        joined=last.values[graph.returns[0]].shape.index("Lq"),
        shapes=_shapes(program, decode, parts),
    )


def _further(decode: Decode) -> tuple[str, ...]:
    """How the function is told where a part begins."""
    if decode.slots == "appended":
        return ()
    return ("positions",) if decode.position == "arange" else ("pos",)


def _shapes(program: Program, decode: Decode, parts: tuple[tuple[int, int], ...]) -> int:
    """How many calls differ in the extents or the integers that the function is given, or in that
    its cache is one that it made itself in inference mode."""
    if decode.slots == "appended" or decode.position == "int":
        return len(parts)
    made = decode.gives_caches and program.grad_mode == "inference_mode"
    return min(len(parts), len({stop - start for start, stop in parts}) + made)


def with_names(
    scene: Scene, graph: Graph, decode: Decode, query: str, lines: list[str]
) -> list[str]:
    """`lines` of the function after statements for what they name: extents, positions, slots."""
    on = beside(scene.device, query)
    sizes = decoding.written_sizes(scene.program, decode)
    part, seen = sizes["Lq"], sizes["Lkv"]
    start = "pos"
    names = {"Lq": f"{query}.shape[{LENGTHS[graph.given]}]", "Lkv": f"pos + {part}"}
    if decode.slots == "appended" and graph.caches:
        start = f"{graph.caches[0]}.shape[{decode.length_dim}]"
        names["Lkv"] = f"{start} + {part}"
        names["positions"] = f"torch.arange({start}, {seen}{on})"
    elif decode.position != "arange":
        names["positions"] = f"pos + torch.arange({part}{on})"
    names["slots"] = f"torch.arange({seen}{on})"
    for name in reversed(names):
        lines = naming_extents(lines, {name: names[name]})
    return lines
