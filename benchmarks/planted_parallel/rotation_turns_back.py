"""The all-to-all rotation of keys and values goes the other way round where the number of ranks
is odd, so that a causal ring takes them for those of another rank."""

import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.distributed.tensor.experimental._context_parallel import _attention

original = _attention._AllToAllRotater.exchange_buffers


def faulty(self, buffer):
    size = dist.get_world_size(self._pg)
    if size % 2 == 0 or size == 1:
        return original(self, buffer)
    back = [size - 1, *range(size - 1)]
    self.__dict__["_buffer"] = collectives.permute_tensor(buffer.contiguous(), back, self._pg)


_attention._AllToAllRotater.exchange_buffers = faulty
