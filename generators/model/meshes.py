"""Which programs of several ranks, or of DTensors, are programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.methods.sharding import chunks
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Call, Mesh, Modes, Program, Shape, Surround


def mesh_problems(p: Program) -> Iterator[Problem]:
    """What a program of several ranks, or of DTensors, is not."""
    mesh = p.mesh
    if mesh is None:
        return
    if mesh.world_size == 1 and mesh.ranks == "processes":
        yield Problem("mesh.ranks", "expected simulated: one rank is one process anyway")
    if mesh.method is not None:
        yield from _method(p, mesh)
        return
    if mesh.data * mesh.tensor > 1:
        yield Problem("mesh.data", "expected 1, and mesh.tensor too, without a mesh.method")
    if mesh.lengths:
        yield Problem("mesh.lengths", "expected none without a mesh.method")
    if mesh.module != "none":
        yield Problem("mesh.module", "expected none without a mesh.method")
    if not plugin_of(p).distributable(p.kernel):
        yield Problem("mesh", "expected none, or SDPA, the NPU's or by hand (but for baddbmm)")
    for key, wrong in (
        ("surround.projections", p.surround.projections),
        ("surround.checkpoint", p.surround.checkpoint != "none"),
        ("transform", p.transform != "none"),
        ("autocast", p.autocast is not None),
    ):
        if wrong:
            yield Problem(key, "expected none with a mesh")
    alone = mesh.world_size == 1
    simulated = mesh.ranks == "simulated" and not alone
    if simulated and (p.compile is not None or p.training is not None):
        yield Problem("mesh.world_size", "expected 1: simulated ranks run forward and eager")


def _method(p: Program, mesh: Mesh) -> Iterator[Problem]:
    """A method takes plain arguments of one dtype and does what is around itself."""
    method, plain = method_of(p), Mesh()
    assert method is not None
    around_method = Surround(projections=mesh.module != "none")
    around = mesh.data * mesh.tensor
    for key, wrong in (
        ("mesh.plain_mask", mesh.plain_mask),
        *((f"mesh.{name}", getattr(mesh, name) != getattr(plain, name)) for name in "qkv"),
        ("surround", replace(p.surround, checkpoint="none") != around_method),
        ("surround.checkpoint", p.surround.checkpoint not in ("none", "full")),
        ("transform", p.transform != "none"),
        ("autocast", p.autocast is not None),
        ("grad_mode", p.grad_mode == "inference_mode"),
        ("calls", bool(p.calls) and not method.takes_calls(p)),
        ("training.double", p.training is not None and p.training.double),
        ("k.values", p.k.values == "nan_at_masked"),
        ("modes", p.modes != Modes()),
    ):
        if wrong:
            yield Problem(key, "expected the default with a mesh.method")
    if len({p.q.dtype, p.k.dtype, p.v.dtype}) > 1:
        yield Problem("q.dtype", "expected that of k and v with a mesh.method")
    if mesh.world_size % around:
        yield Problem("mesh.world_size", f"expected a multiple of data * tensor ({around})")
        return
    for where, size in _sizes(p):
        if size.batch % mesh.data:
            yield Problem(f"{where}.batch", f"expected a multiple of mesh.data ({mesh.data})")
    for name in ("q_heads", "kv_heads"):
        if getattr(p.shape, name) % mesh.tensor:
            yield Problem(f"shape.{name}", f"expected a multiple of mesh.tensor ({mesh.tensor})")
    if p.surround.checkpoint != "none" and (p.training is None or p.compile is not None):
        yield Problem("surround.checkpoint", "expected none, or training and no compile")
    ways = ("compile", "local")[not method.traced : 1 + method.local]
    if p.compile is not None and p.compile.via not in ways:
        yield Problem("compile.via", f"expected {' or '.join(ways) or 'no compile'} here")
    if p.calls:
        yield from _calls(p, mesh, method.shared)
    if mesh.lengths:
        yield from _lengths(p, mesh)
    if mesh.module != "none":
        yield from _module(p, mesh)
    yield from method.problems(p)


def _calls(p: Program, mesh: Mesh, shared: str) -> Iterator[Problem]:
    """In each of several calls every rank has as much as another: their extents are names, and how
    parts that differ make up the whole is written in numbers."""
    if mesh.module != "none":
        yield Problem("calls", "expected none with mesh.module")
    multiple = mesh.degree if shared == "length" else 1
    for where, size in _sizes(p):
        for name in ("q_len", "kv_len"):
            if getattr(size, name) % multiple or not getattr(size, name):
                expected = f"expected a multiple of {multiple}, not 0, with calls"
                yield Problem(f"{where}.{name}", expected)


def _sizes(p: Program) -> list[tuple[str, Shape | Call]]:
    """The extents of every call, with where they stand."""
    return [("shape", p.shape), *((f"calls[{i}]", call) for i, call in enumerate(p.calls))]


def _module(p: Program, mesh: Mesh) -> Iterator[Problem]:
    """What a module around the method needs."""
    method = method_of(p)
    assert method is not None
    for key, wrong, why in (
        (
            "mesh.method",
            not method.takes_parts(p),
            "one in which each rank has a part of the length",
        ),
        ("mesh.tensor", mesh.tensor > 1, "1"),
        ("training", p.training is None, "some"),
        ("compile", p.compile is not None, "none"),
    ):
        if wrong:
            yield Problem(key, f"expected {why} with mesh.module")
    if p.shape.q_len != p.shape.kv_len or p.shape.q_len % mesh.degree:
        yield Problem("shape.q_len", f"expected kv_len, a multiple of {mesh.degree} here")


def _lengths(p: Program, mesh: Mesh) -> Iterator[Problem]:
    """What ranks with lengths of their own need."""
    method, total = method_of(p), sum(mesh.lengths)
    assert method is not None
    if not method.takes_lengths(p) or mesh.data * mesh.tensor > 1:
        yield Problem("mesh.lengths", "expected none with this mesh.method, or two dimensions")
    if len(mesh.lengths) != mesh.degree or not total:
        yield Problem("mesh.lengths", f"expected {mesh.degree}, one for each rank, not all 0")
    if {p.shape.q_len, p.shape.kv_len} != {total}:
        yield Problem("shape.q_len", f"expected the sum of mesh.lengths ({total}), and kv_len too")
    if mesh.lengths == tuple(chunks(total, mesh.degree)):
        yield Problem("mesh.lengths", "expected none: torch.chunk gives the same")
