"""q, k and v as DTensors: the mesh, how they are spread over it, and the result put together."""

from __future__ import annotations

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.model.program import Mesh
from attnfuzz.generators.render.scene import Scene

DIMS = {"batch": 0, "heads": 1, "length": 2, "head_dim": 3}


ALONE = ", rank=0, world_size=1, store=dist.HashStore()"
"""What a process group of one rank is told besides."""


def _shared_out(scene: Scene) -> Mesh | None:
    """The program's mesh, unless its kernel does by itself what is about it."""
    return None if plugin_of(scene.program).spreads_itself else scene.program.mesh


def set_up(scene: Scene) -> list[str]:
    """Statements for the process group and `MESH`: one process, as many as `torchrun` starts, or a
    group of ranks of which this process simulates every one, or is one."""
    mesh, method = _shared_out(scene), method_of(scene.program)
    if mesh is None:
        return []
    if method is not None:
        sharding = method.sharding(scene.program)
        group = _real(scene, mesh.world_size)
        if _is_one(scene):
            group = _fake(scene, mesh.world_size, sharding.telling_rank)
        made = f"MESH = {sharding.device_mesh(scene.device)}"
        return [f"dist.init_process_group({group})", made, *method.set_up(scene)]
    group = _fake(scene, mesh.world_size, rank=0)
    if not _is_one(scene) and (mesh.world_size == 1 or mesh.ranks == "processes"):
        group = _real(scene, mesh.world_size)
    return [
        f"dist.init_process_group({group})",
        f'MESH = init_device_mesh("{scene.device}", ({mesh.world_size},))',
    ]


def _real(scene: Scene, world_size: int) -> str:
    """A process group whose ranks are all there. A script's processes have a card each, which
    `init_device_mesh` gives them by `LOCAL_RANK`."""
    backend = "gloo" if scene.device == "cpu" else "nccl"
    return f'"{backend}"{ALONE * (world_size == 1)}'


def distributed(scene: Scene, names: list[str]) -> list[str]:
    """Statements that make DTensors of the arguments `names`: q, k and v as the mesh says, the
    others replicated; a mask that the program leaves plain stays so."""
    mesh = _shared_out(scene)
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


def launched(scene: Scene) -> str:
    """How the script is started, for the end of its docstring; empty where it is one process."""
    mesh = scene.program.mesh
    if mesh is None or not mesh.launched or _is_one(scene):
        return ""
    return f"\n\ntorchrun --nproc-per-node {mesh.world_size} repro.py\n"


def _is_one(scene: Scene) -> bool:
    """Whether this process is one rank, and there are no others: on a card or an NPU that is not
    there, so that nothing is computed."""
    return scene.device != "cpu" and not scene.all_ranks


def _fake(scene: Scene, world_size: int, rank: int) -> str:
    """A process group whose other ranks are not there; by itself torch's has no tensors of NPUs."""
    backend = "npu:fake" if scene.device == "npu" else "fake"
    return f'"{backend}", rank={rank}, world_size={world_size}, store=FakeStore()'


def simulated(scene: Scene) -> list[str]:
    """The context manager in which each operation is done for every rank of a simulated group."""
    mesh = scene.program.mesh
    return [f"LocalTensorMode({mesh.world_size})"] if mesh and _is_simulated(mesh, scene) else []


def _is_simulated(mesh: Mesh, scene: Scene) -> bool:
    return mesh.world_size > 1 and mesh.ranks == "simulated" and not _is_one(scene)


def gathered(scene: Scene, out: str) -> str:
    """The whole result as a plain tensor, which all simulated ranks must agree on."""
    mesh = _shared_out(scene)
    if mesh is None:
        return out
    spread = {mesh.q, mesh.k, mesh.v} != {"replicate"}
    agreed = spread and _is_simulated(mesh, scene)
    return f"{out}.full_tensor()" + (".reconcile()" if agreed else "")
