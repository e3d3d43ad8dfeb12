"""q, k and v as DTensors: the mesh, how they are spread over it, and the result put together."""

from __future__ import annotations

from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.model.program import Mesh
from attnfuzz.generators.render.scene import Scene

DIMS = {"batch": 0, "heads": 1, "length": 2, "head_dim": 3}


BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}
"""Of process groups, by device."""


def set_up(scene: Scene) -> list[str]:
    """Statements for the process group and `MESH`: one process, as many as `torchrun` starts, or a
    group of ranks of which this process simulates every one, or is the first."""
    mesh, method = scene.program.mesh, method_of(scene.program)
    if mesh is None:
        return []
    if method is not None:
        group = f'"{BACKENDS[scene.inputs_device]}"'
        if _is_virtual(scene):
            group = f'"fake", rank=0, world_size={mesh.world_size}, store=FakeStore()'
        elif mesh.world_size == 1:
            group += ", rank=0, world_size=1, store=dist.HashStore()"
        made = method.sharding(scene.program).device_mesh(scene.device)
        lines = [f"dist.init_process_group({group})", f"MESH = {made}"]
        return [*lines, *method.set_up(scene)]
    group = f'"fake", rank=0, world_size={mesh.world_size}, store=FakeStore()'
    if mesh.world_size == 1:
        group = f'"{BACKENDS[scene.inputs_device]}", rank=0, world_size=1, store=dist.HashStore()'
    elif mesh.ranks == "processes" and not _is_virtual(scene):
        group = f'"{BACKENDS[scene.inputs_device]}"'
    return [
        f"dist.init_process_group({group})",
        f'MESH = init_device_mesh("{scene.device}", ({mesh.world_size},))',
    ]


def distributed(scene: Scene, names: list[str]) -> list[str]:
    """Statements that make DTensors of the arguments `names`: q, k and v as the mesh says, the
    others replicated; a mask that the program leaves plain stays so."""
    mesh = scene.program.mesh
    if mesh is None:
        return []
    lines = [f"{name} = {_placed(name, getattr(mesh, name))}" for name in ("q", "k", "v")]
    for name in names:
        plain = mesh.plain_mask and name in ("mask", "attn_mask", "atten_mask")
        if name not in ("q", "k", "v") and not plain:
            lines.append(f"{name} = {_placed(name, 'replicate')}")
    return lines


def _placed(name: str, placement: str) -> str:
    text = f"DTensor.from_local({name}, MESH, [Replicate()])"
    if placement == "replicate":
        return text
    return f"{text}.redistribute(MESH, [Shard({DIMS[placement]})])"


def _is_virtual(scene: Scene) -> bool:
    """Whether the device is not there: no numbers, so that one rank tells as much as all."""
    return scene.device != scene.inputs_device


def simulated(scene: Scene) -> list[str]:
    """The context manager in which each operation is done for every rank of a simulated group."""
    mesh = scene.program.mesh
    return [f"LocalTensorMode({mesh.world_size})"] if mesh and _is_simulated(mesh, scene) else []


def _is_simulated(mesh: Mesh, scene: Scene) -> bool:
    return mesh.world_size > 1 and mesh.ranks == "simulated" and not _is_virtual(scene)


def gathered(scene: Scene, out: str) -> str:
    """The whole result as a plain tensor, which all simulated ranks must agree on."""
    mesh = scene.program.mesh
    if mesh is None:
        return out
    spread = {mesh.q, mesh.k, mesh.v} != {"replicate"}
    agreed = spread and _is_simulated(mesh, scene)
    return f"{out}.full_tensor()" + (".reconcile()" if agreed else "")
