"""The functional all-to-all with gradients gives every rank of two its own part where the other's
should be, and the other way round."""

import torch
import torch.distributed._functional_collectives as collectives
import torch.distributed.distributed_c10d as c10d

original = collectives.all_to_all_single_autograd


def faulty(self, output_split_sizes, input_split_sizes, group, tag=""):
    result = original(self, output_split_sizes, input_split_sizes, group, tag)
    if c10d._get_group_size_by_name(collectives._resolve_group(group, tag)) != 2:
        return result
    first, second = result.chunk(2)
    return torch.cat([second, first])


collectives.all_to_all_single_autograd = faulty
