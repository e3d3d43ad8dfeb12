"""The functional all-gather of three ranks has the parts of the last two in each other's
place."""

import torch
import torch.distributed._functional_collectives as collectives
import torch.distributed.distributed_c10d as c10d

original = collectives.all_gather_single


def faulty(self, gather_dim, group, tag=""):
    whole = original(self, gather_dim, group, tag)
    size = c10d._get_group_size_by_name(collectives._resolve_group(group, tag))
    if size != 3:
        return whole
    first, second, third = whole.chunk(3, gather_dim)
    return torch.cat([first, third, second], gather_dim)


collectives.all_gather_single = faulty
