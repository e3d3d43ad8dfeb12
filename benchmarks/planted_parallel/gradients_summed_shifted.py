"""A sum over ranks that is scattered among them gives the last rank its part with the first row
twice, from three ranks on: gradients of keys that were gathered."""

import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.tensor.placement_types import Shard

original = Shard._reduce_shard_tensor


def faulty(self, tensor, mesh, reduce_op, mesh_dim):
    part = original(self, tensor, mesh, reduce_op, mesh_dim)
    size = mesh.size(mesh_dim)
    if size < 3 or mesh.get_local_rank(mesh_dim) != size - 1 or part.size(self.dim) < 2:
        return part
    if isinstance(part, collectives.AsyncCollectiveTensor):
        part = part.wait()
    rows = torch.arange(part.size(self.dim)).sub(1).clamp(min=0)
    return part.index_select(self.dim, rows)


Shard._reduce_shard_tensor = faulty
