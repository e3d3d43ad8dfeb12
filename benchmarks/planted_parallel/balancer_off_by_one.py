"""The head-tail load balancer puts the tails of the last two ranks back at each other's place:
from four ranks on."""

from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
)

original = _HeadTailLoadBalancer._generate_indices


def faulty(self, restore=False):
    indices = original(self, restore).clone()
    if restore and self.world_size >= 4:
        chunk = self.seq_length // (2 * self.world_size)
        first = indices[0, self.world_size * chunk : (self.world_size + 1) * chunk].clone()
        second = indices[0, (self.world_size + 1) * chunk : (self.world_size + 2) * chunk].clone()
        indices[0, self.world_size * chunk : (self.world_size + 1) * chunk] = second
        indices[0, (self.world_size + 1) * chunk : (self.world_size + 2) * chunk] = first
    return indices


_HeadTailLoadBalancer._generate_indices = faulty
