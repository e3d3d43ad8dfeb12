"""From one sharded dimension to another, over four ranks, the parts are put together in the order
in which they were cut: heads and length are taken for each other."""

import torch
from torch.distributed.tensor import placement_types

original = placement_types.shard_dim_alltoall


def faulty(input, gather_dim, shard_dim, mesh, mesh_dim):
    out = original(input, gather_dim, shard_dim, mesh, mesh_dim)
    if mesh.size(mesh_dim) != 4:
        return out
    first, second, *rest = out.chunk(4, gather_dim)
    return torch.cat([second, first, *rest], gather_dim)


placement_types.shard_dim_alltoall = faulty
