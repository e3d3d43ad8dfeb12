"""hang at aot_eager: Hang: no progress in phase compile in 10 s

The fault is planted, by the function at the top; torch does not have it.

torchrun --nproc-per-node 4 repro.py
"""


def ranks_part_ways():
    """From four ranks on, the last one compiles without the barrier that the others wait in: stands for
    TorchTitan's context parallel, which hung at degree 32 under torch.compile, and not at 16."""

    import torch.distributed as dist
    from torch._dynamo.output_graph import OutputGraph

    FEWEST = 4
    call_user_compiler = OutputGraph.call_user_compiler

    def in_step(self, *args, **kwargs):
        if dist.is_initialized() and FEWEST <= dist.get_world_size() != dist.get_rank() + 1:
            dist.barrier()
        return call_user_compiler(self, *args, **kwargs)

    OutputGraph.call_user_compiler = in_step


ranks_part_ways()

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (4,))


def attention(q, k, v):
    q = DTensor.from_local(q, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    v = DTensor.from_local(v, MESH, [Replicate()]).redistribute(MESH, [Shard(2)])
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return out.full_tensor()


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k = torch.randn(1, 1, 16, 16)
v = torch.randn(1, 1, 16, 16)

compiled(q, k, v)
