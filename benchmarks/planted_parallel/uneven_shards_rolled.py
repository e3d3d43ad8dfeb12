"""What is put together of uneven shards has its last row first."""

import torch
from torch.distributed.tensor.placement_types import Shard

original = Shard._to_replicate_tensor


def faulty(self, local_tensor, mesh, mesh_dim, current_logical_shape):
    whole = original(self, local_tensor, mesh, mesh_dim, current_logical_shape)
    length = current_logical_shape[self.dim]
    uneven = length % mesh.size(mesh_dim) != 0 and length > mesh.size(mesh_dim)
    return torch.roll(whole, 1, self.dim) if uneven else whole


Shard._to_replicate_tensor = faulty
