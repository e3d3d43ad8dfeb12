"""The last rank gathers what is sharded over two dimensions of a mesh along the second one first,
the others along the first: two collectives in different order."""

from torch.distributed.tensor import _redistribute

original = _redistribute._optimize_transform_infos


def faulty(transform_infos, device_mesh, *placements):
    infos = original(transform_infos, device_mesh, *placements)
    last = device_mesh.get_rank() == device_mesh.size() - 1
    steps = [info.src_dst_placements for info in infos]
    gathers = all(old.is_shard() and new.is_replicate() for old, new in steps)
    dims = {old.dim for old, _ in steps if old.is_shard()}
    both = len(steps) == len(dims) == 2 and min(device_mesh.shape) > 1
    return infos[::-1] if last and gathers and both else infos


_redistribute._optimize_transform_infos = faulty
