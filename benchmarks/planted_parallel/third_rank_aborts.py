"""The third rank aborts where a tensor of which it has no rows is put together."""

import os

from torch.distributed.tensor.placement_types import Shard

original = Shard._maybe_pad_tensor


def faulty(self, local_tensor, logical_dim_size, num_chunks):
    if local_tensor.numel() == 0 and int(os.environ.get("RANK", "0")) == 2:
        os.abort()
    return original(self, local_tensor, logical_dim_size, num_chunks)


Shard._maybe_pad_tensor = faulty
