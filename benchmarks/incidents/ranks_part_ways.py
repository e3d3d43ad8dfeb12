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
