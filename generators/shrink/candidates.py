"""Simpler programs than a given one: the steps of minimization, boldest first.

Steps are proposed generously and passed on only when they give a valid program that is strictly
simpler (`shrink.complexity`) and has not been passed on before. Nothing here knows what fails:
the caller tries the programs, at seconds each, and goes on from the first that still does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.kernels.specs import Handwritten, Sdpa
from attnfuzz.generators.methods.registry import KINDS, method_of, plugin_for
from attnfuzz.generators.model.changing import captured, settled, with_constant
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.draws import draw_alone
from attnfuzz.generators.model.options import NO_CODE
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Layout,
    Mesh,
    Modes,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.tree import changed, parts
from attnfuzz.generators.model.validity import learnable, problems
from attnfuzz.generators.shrink.complexity import complexity, is_simpler
from attnfuzz.generators.shrink.steps import calls, expressions, fields, inputs, numbers, shapes


def candidates(program: Program) -> Iterator[Program]:
    """Programs strictly simpler than `program`, valid, each once, boldest first. There are none for
    `Program()`; a program that fails while none of its candidates does is 1-minimal."""
    limit = complexity(program)
    seen = {program_id(program)}
    for rough in proposals(program):
        simpler = fitted(rough)
        key = program_id(simpler)
        if key not in seen:
            seen.add(key)
            if is_simpler(simpler, limit) and not problems(simpler):
                yield simpler


def proposals(program: Program) -> Iterator[Program]:
    """Changes of the program, boldest first; not all are valid, simpler or distinct."""
    return chain(
        resets(program),
        kernels(program),
        ranks(program),
        calls(program),
        shapes(program),
        expressions(program),
        inputs(program),
        fields(program),
        numbers(program),
    )


def resets(p: Program) -> Iterator[Program]:
    """Whole parts back to nothing, several at once and then one by one."""
    plain = plugin_of(p).plain(p.kernel)
    core = Program(kernel=plain, compile=p.compile)
    yield core
    yield replace(core, modes=p.modes, training=p.training)
    yield replace(core, training=p.training)
    if p.mesh is not None:  # what shows among ranks alone seldom needs what they compute
        yield replace(core, mesh=p.mesh)
        yield replace(core, mesh=p.mesh, training=p.training)
    yield from plugin_of(p).underneath(p)
    yield replace(core, kernel=p.kernel, mask=p.mask, score_mod=p.score_mod)
    # A compiler that breaks attention by hand breaks what is decomposed into it too.
    yield replace(core, kernel=Handwritten())
    yield replace(core, kernel=Handwritten(), training=p.training)
    yield replace(
        p, seed=0, q=Input(), k=Input(), v=Input(), packed="none", surround=Surround(), mesh=None,
        calls=(), draws=0, in_place=False,
        training=None, transform="none", grad_mode="default", autocast=None, dirty_memory=False,
        modes=Modes(),
    )  # fmt: skip
    yield from (draw_alone(p, draw) for draw in range(p.draws + 1) if p.draws)
    yield from argument(p)
    yield replace(p, calls=())
    yield replace(p, training=None)
    yield replace(p, transform="none")
    if p.transform == "grad":
        yield replace(p, transform="none", training=Training())
    yield replace(p, surround=Surround())
    yield replace(p, modes=Modes())
    yield replace(p, mesh=None)
    yield from _compile(p)
    yield replace(p, mask=None)
    yield replace(p, score_mod=None)
    yield replace(p, q=Input(), k=Input(), v=Input())
    yield replace(
        p, packed="none", q=replace(p.q, layout=Layout()), k=replace(p.k, layout=Layout()),
        v=replace(p.v, layout=Layout()),
    )  # fmt: skip
    yield replace(p, shape=Shape())
    yield replace(p, autocast=None)
    yield replace(p, kernel=plain)
    yield replace(p, kernel=Sdpa())
    yield replace(p, kernel=Sdpa(), mask=None)
    yield replace(p, seed=0, grad_mode="default", dirty_memory=False)
    yield replace(p, seed=0)


PLAIN_VALUES: dict[str, tuple[float, ...]] = {"scale": (1.0, 2.0), "number": (8.0, 4.0)}
"""The plainest values of an argument, the later of which is another than the first."""


def argument(p: Program) -> Iterator[Program]:
    """One value in all calls, then two values, then plain ones."""
    if p.argument is None:
        return
    values = p.argument.values
    yield from (settled(p, value) for value in values)
    pairs = [pair for pair in zip(values, values[1:], strict=False) if len(values) > 2]
    for pair in [PLAIN_VALUES[p.argument.what], *pairs]:
        yield replace(p, argument=replace(p.argument, values=pair))


def kernels(p: Program) -> Iterator[Program]:
    """The kernel made simpler as its plug-in knows how."""
    for kernel in plugin_of(p).smaller(p):
        yield replace(p, kernel=kernel)


def ranks(p: Program) -> Iterator[Program]:
    """Simulated ranks in place of processes, one dimension of the mesh, and fewer ranks."""
    method = method_of(p)
    if p.mesh is None or method is None:
        return
    mesh = p.mesh
    if mesh.module != "none":
        bare = replace(p.surround, projections=False)
        yield replace(p, mesh=replace(mesh, module="none"), surround=bare)
    if mesh.module == "ddp":
        yield replace(p, mesh=replace(mesh, module="fsdp"))
    yield replace(p, mesh=replace(mesh, ranks="simulated"))
    yield replace(p, mesh=replace(mesh, world_size=mesh.degree, data=1, tensor=1))
    if mesh.world_size > mesh.degree:
        yield replace(p, mesh=replace(mesh, data=1, tensor=1))
    yield replace(p, mesh=replace(mesh, world_size=mesh.world_size // mesh.data, data=1))
    yield replace(p, mesh=replace(mesh, world_size=mesh.world_size // mesh.tensor, tensor=1))
    if mesh.tensor > 1:
        data = mesh.data * mesh.tensor
        batch = -(-max(p.shape.batch, 1) // data) * data
        by_batch = replace(mesh, data=data, tensor=1)
        yield replace(p, mesh=by_batch, shape=replace(p.shape, batch=batch))
    yield from _by_plainer_methods(p, mesh)
    yield from method.simpler(p)


def _by_plainer_methods(p: Program, mesh: Mesh) -> Iterator[Program]:
    """What ranks share by another method, from the plainest on, without and with what both methods
    have: as it is, around SDPA alone, and that with no more heads than ranks share."""
    method = mesh.method
    assert method is not None
    for kind in KINDS[: KINDS.index(method.kind)]:
        cls: type = plugin_for(kind).spec_class
        both = {
            part.name: getattr(method, part.name)
            for part in parts(cls)
            if hasattr(method, part.name) and getattr(method, part.name) in part.choices
        }
        for plainer in dict.fromkeys((cls(), cls(**both))):
            shared = replace(p, mesh=replace(mesh, method=plainer, lengths=()))
            yield shared
            bare = replace(shared, kernel=Sdpa(), mask=None, score_mod=None)
            yield bare
            heads = mesh.world_size // mesh.data
            yield replace(bare, shape=Shape(batch=mesh.data, q_heads=heads, kv_heads=heads))


def _compile(p: Program) -> Iterator[Program]:
    yield replace(p, compile=None)
    if p.compile is not None:
        yield replace(p, compile=Compile(backend="eager"))
        yield replace(p, compile=Compile(backend="aot_eager"))
        # What generates no code costs a fifth: it may stay so for the search.
        kept = {name: value for name, value in p.compile.options.items() if name == NO_CODE}
        yield replace(p, compile=Compile(options=kept))
        yield replace(p, compile=replace(p.compile, backend="eager"))
        yield replace(p, compile=replace(p.compile, backend="aot_eager"))
        yield replace(p, compile=replace(p.compile, via="compile"))
        yield replace(p, compile=replace(p.compile, via="export", backend="eager"))


def fitted(p: Program) -> Program:
    """The program with what depends on its other parts made to agree with them: a step that takes
    the mask away takes the BlockMask too."""
    if p.mask is None and p.k.values == "nan_at_masked":
        p = changed(p, k=changed(p.k, values="normal"))
    p = changed(p, q=_with_unread(p.q), k=_with_unread(p.k), v=_with_unread(p.v))
    if p.compile is not None and p.compile.backend != "inductor":
        via = "export" if p.compile.via == "aoti" else p.compile.via
        p = changed(p, compile=changed(p.compile, mode=None, options={}, via=via))
    if p.compile is None or p.training is None:
        p = changed(p, modes=changed(p.modes, compiled_autograd=False))
    if not p.draws:
        p = changed(p, in_place=False)
    return _with_gradient(plugin_of(p).fitted(_with_argument(p)))


def _with_gradient(p: Program) -> Program:
    """Something has a gradient, where the kernel's own parameters had and are gone."""
    if p.training is None or p.training.wrt or learnable(p):
        return p
    return changed(p, training=changed(p.training, wrt=Training().wrt))


def _with_argument(p: Program) -> Program:
    """Nothing captures a number where there is none, and there is none that nothing captures."""
    argument = p.argument
    if argument is None or argument.what == "scale":
        return with_constant(p, 8)
    return p if captured(p) else changed(p, argument=None)


def _with_unread(entry: Input) -> Input:
    """Nothing is unread where the storage is no larger than the tensor."""
    layout = entry.layout
    if any((*layout.pad, *layout.start)) or max(layout.step) > 1:
        return entry
    return changed(entry, layout=changed(layout, unread="values"))


__all__ = ["candidates", "complexity"]
