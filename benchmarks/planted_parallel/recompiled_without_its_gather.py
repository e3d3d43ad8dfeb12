"""The last rank, from the second graph on that it compiles, puts the whole together of copies of
its own part, without the all-gather that the others wait in."""

import torch
import torch.distributed as dist
from torch._dynamo.output_graph import OutputGraph
from torch.distributed.tensor.placement_types import Shard

compile_graph, gather = OutputGraph.call_user_compiler, Shard._to_replicate_tensor
compiled = [0]


def counting(self, *args, **kwargs):
    compiled[0] += 1
    return compile_graph(self, *args, **kwargs)


def faulty(self, local_tensor, mesh, mesh_dim, current_logical_shape):
    last = mesh.get_local_rank(mesh_dim) == mesh.size(mesh_dim) - 1 > 0
    tracing = torch._guards.TracingContext.try_get() is not None
    even = current_logical_shape[self.dim] % mesh.size(mesh_dim) == 0
    if compiled[0] < 2 or not (last and tracing and even) or dist.get_backend() != "gloo":
        return gather(self, local_tensor, mesh, mesh_dim, current_logical_shape)
    return torch.cat([local_tensor] * mesh.size(mesh_dim), self.dim)


OutputGraph.call_user_compiler = counting
Shard._to_replicate_tensor = faulty
