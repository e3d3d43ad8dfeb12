"""Which programs of several ranks, or of DTensors, are programs."""

from __future__ import annotations

from collections.abc import Iterator

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Mesh, Modes, Program, Surround


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
    """A method takes plain arguments of one dtype, in one call, and does what is around itself."""
    method, plain = method_of(p), Mesh()
    assert method is not None
    around = mesh.data * mesh.tensor
    for key, wrong in (
        ("mesh.plain_mask", mesh.plain_mask),
        *((f"mesh.{name}", getattr(mesh, name) != getattr(plain, name)) for name in "qkv"),
        ("surround", p.surround not in (Surround(), Surround(checkpoint="full"))),
        ("transform", p.transform != "none"),
        ("autocast", p.autocast is not None),
        ("grad_mode", p.grad_mode == "inference_mode"),
        ("calls", bool(p.calls)),
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
    if p.shape.batch % mesh.data:
        yield Problem("shape.batch", f"expected a multiple of mesh.data ({mesh.data})")
    for name in ("q_heads", "kv_heads"):
        if getattr(p.shape, name) % mesh.tensor:
            yield Problem(f"shape.{name}", f"expected a multiple of mesh.tensor ({mesh.tensor})")
    if p.surround.checkpoint != "none" and (p.training is None or p.compile is not None):
        yield Problem("surround.checkpoint", "expected none, or training and no compile")
    ways = ("compile", "local")[not method.traced : 1 + method.local]
    if p.compile is not None and p.compile.via not in ways:
        yield Problem("compile.via", f"expected {' or '.join(ways) or 'no compile'} here")
    yield from method.problems(p)
